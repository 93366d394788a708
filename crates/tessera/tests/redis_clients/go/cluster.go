package main

import (
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// inClusterMode uses a table whose partitions are ranges of Redis' slots: the client asks where each slot is led and sends commands
// there, and commands of several keys only if they are in one slot.
func inClusterMode(user, password string, ports []string) {
	options := redis.ClusterOptions{Username: user, Password: password}
	for _, port := range ports {
		options.Addrs = append(options.Addrs, "127.0.0.1:"+port)
	}
	client := redis.NewClusterClient(&options)
	names := keys("key")
	value(client.Pipelined(background, func(pipe redis.Pipeliner) error {
		for number, name := range names {
			pipe.Set(background, name, number, 0)
		}
		return nil
	}))
	for number, name := range names {
		equal("GET", value(client.Get(background, name).Int()), number)
	}
	for number := range 20 {
		first, second := fmt.Sprintf("{account%d}a", number), fmt.Sprintf("{account%d}b", number)
		equal("MSET", value(client.MSet(background, first, 1, second, 2).Result()), "OK")
		sum := func(meanwhile func()) error {
			return client.Watch(background, func(tx *redis.Tx) error {
				sum := value(tx.Get(background, first).Int()) + value(tx.Get(background, second).Int())
				meanwhile()
				_, err := tx.TxPipelined(background, func(pipe redis.Pipeliner) error {
					pipe.Set(background, first, sum, 0)
					pipe.Incr(background, second)
					return nil
				})
				return err
			}, first, second)
		}
		equal("EXEC", sum(func() {}), nil)
		conflict := sum(func() { value(client.Set(background, second, 10, 0).Result()) })
		equal("EXEC after a write", conflict, error(redis.TxFailedErr))
		equal("MGET", value(client.MGet(background, first, second).Result()), []any{"3", "10"})
		value(client.TxPipelined(background, func(pipe redis.Pipeliner) error {
			pipe.Del(background, first)
			pipe.Rename(background, second, first)
			return nil
		}))
		equal("GET of what was renamed", value(client.Get(background, first).Int()), 10)
	}
	slots := value(client.ClusterSlots(background).Result())
	leaders := map[string]bool{}
	for _, slot := range slots {
		leaders[slot.Nodes[0].Addr] = true
	}
	equal("the number of nodes that lead", len(leaders), len(ports))
	equal("the state", strings.Contains(value(client.ClusterInfo(background).Result()), "cluster_state:ok"), true)
}
