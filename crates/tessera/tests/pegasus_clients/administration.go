// What operators' tools do with the client: they use its sessions with meta servers and replica servers.
package main

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/XiaoMi/pegasus-go-client/admin"
	metas "github.com/XiaoMi/pegasus-go-client/idl/admin"
	"github.com/XiaoMi/pegasus-go-client/idl/base"
	"github.com/XiaoMi/pegasus-go-client/idl/radmin"
	"github.com/XiaoMi/pegasus-go-client/session"
)

// How long a call may take that is refused. Those that are refused in the wrong way are repeated until their time is over.
const atOnce = time.Second

func refused(what string, call func() error) {
	began := time.Now()
	err := call()
	if err == nil || !strings.Contains(err.Error(), "ERR_OPERATION_DISABLED") {
		fail("%s: %v", what, err)
	}
	if took := time.Since(began); took > atOnce {
		fail("%s was refused after %v", what, took)
	}
}

func administration(addresses []string, table string, partitions int) {
	meta := session.NewMetaManager(addresses, session.NewNodeSession)
	refused("start backup", func() error {
		_, err := meta.StartBackupApp(short(), &metas.StartBackupAppRequest{AppID: 1})
		return err
	})
	refused("query backup policy", func() error {
		_, err := meta.QueryBackupPolicy(short(), &metas.QueryBackupPolicyRequest{})
		return err
	})
	refused("restore", func() error {
		_, err := meta.RestoreApp(short(), &metas.RestoreAppRequest{})
		return err
	})
	refused("start bulk load", func() error {
		_, err := meta.StartBulkLoad(short(), &metas.StartBulkLoadRequest{AppName: table})
		return err
	})
	refused("query bulk load", func() error {
		_, err := meta.QueryBulkLoadStatus(short(), &metas.QueryBulkLoadRequest{AppName: table})
		return err
	})
	refused("add duplication", func() error {
		_, err := meta.AddDuplication(short(), &metas.DuplicationAddRequest{AppName: table})
		return err
	})
	refused("query duplication", func() error {
		_, err := meta.QueryDuplication(short(), &metas.DuplicationQueryRequest{AppName: table})
		return err
	})
	refused("balance", func() error {
		_, err := meta.Balance(short(), &metas.BalanceRequest{Gpid: &base.Gpid{}})
		return err
	})

	nodes, err := meta.ListNodes(background(), &metas.ListNodesRequest{Status: metas.NodeStatus_NS_ALIVE})
	ok("list nodes", err)
	primaries, replicas := 0, 0
	for _, node := range nodes.GetInfos() {
		address := node.GetAddress().GetAddress()
		replica := &session.ReplicaSession{NodeSession: session.NewNodeSession(address, session.NodeTypeReplica)}
		refused("add disk", func() error {
			_, err := replica.AddDisk(short(), &radmin.AddNewDiskRequest{DiskStr: "a:/a"})
			return err
		})
		disks, err := replica.QueryDiskInfo(background(), &radmin.QueryDiskInfoRequest{
			Node:    &base.RPCAddress{},
			AppName: table,
		})
		ok("query disk info", err)
		equal("disks", len(disks.GetDiskInfos()), 1)
		disk := disks.GetDiskInfos()[0]
		if disk.DiskCapacityMb < 1 || disk.DiskAvailableMb > disk.DiskCapacityMb {
			fail("a disk of %d MB with %d MB available", disk.DiskCapacityMb, disk.DiskAvailableMb)
		}
		for _, partitions := range disk.HoldingPrimaryReplicas {
			primaries += len(partitions)
			replicas += len(partitions)
		}
		for _, partitions := range disk.HoldingSecondaryReplicas {
			replicas += len(partitions)
		}
		counters(address)
	}
	equal("primaries", primaries, partitions)
	equal("replicas", replicas, 3*partitions)
}

func counters(address string) {
	client := admin.NewRemoteCmdClient(address, session.NodeTypeReplica)
	text, err := client.Call(background(), "perf-counters-by-substr", []string{"@"})
	ok("perf counters", err)
	var answer struct {
		Counters []struct {
			Name  string
			Value float64
		}
	}
	ok("perf counters", json.Unmarshal([]byte(text), &answer))
	if len(answer.Counters) == 0 {
		fail("%s has no counters of partitions: %s", address, text)
	}
}
