// The Go driver of RethinkDB against a cluster: `acceptance ADDRESS... PASSWORD` makes writes and reads of every kind, and `load
// ADDRESS... PASSWORD` writes until its standard input ends while the test kills nodes, and says whether all is there that was
// acknowledged.
package main

import (
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"sync"
	"time"

	r "gopkg.in/rethinkdb/rethinkdb-go.v6"
)

func main() {
	if len(os.Args) < 4 {
		fail("usage: %s acceptance|load ADDRESS... PASSWORD", os.Args[0])
	}
	addresses, password := os.Args[2:len(os.Args)-1], os.Args[len(os.Args)-1]
	switch os.Args[1] {
	case "acceptance":
		acceptance(addresses, password)
	case "load":
		load(addresses, password)
	default:
		fail("no such test: %s", os.Args[1])
	}
}

func fail(format string, arguments ...interface{}) {
	fmt.Fprintf(os.Stderr, format+"\n", arguments...)
	os.Exit(1)
}

func ok(what string, err error) {
	if err != nil {
		fail("%s: %v", what, err)
	}
}

func equal(what string, found, wanted interface{}) {
	if !reflect.DeepEqual(found, wanted) {
		fail("%s: found %v, wanted %v", what, found, wanted)
	}
}

// Without a name of a database, with which the driver fails at NoReplyWait.
func connect(addresses []string, password string) *r.Session {
	session, err := r.Connect(r.ConnectOpts{
		Addresses: addresses, Username: "admin", Password: password,
		InitialCap: 2, MaxOpen: 10, Timeout: 5 * time.Second, ReadTimeout: 20 * time.Second, WriteTimeout: 5 * time.Second,
	})
	ok("connect", err)
	return session
}

func acceptance(addresses []string, password string) {
	_, err := r.Connect(r.ConnectOpts{Address: addresses[0], Username: "admin", Password: "wrong"})
	if err == nil || !strings.Contains(err.Error(), "Wrong password") {
		fail("a wrong password: %v", err)
	}
	for _, version := range []r.HandshakeVersion{r.HandshakeV0_4, r.HandshakeV1_0} {
		options := r.ConnectOpts{Address: addresses[0], HandshakeVersion: version, Username: "admin", Password: password}
		if version == r.HandshakeV0_4 {
			options.AuthKey = password
		}
		session, err := r.Connect(options)
		ok("connect", err)
		info, err := session.Server()
		ok("the server", err)
		equal("its name", info.Name, "node-1")
		session.Close()
	}
	session := connect(addresses, password)
	ok("table_create", r.TableCreate("go", r.TableCreateOpts{Shards: 2, Replicas: 3}).Exec(session))
	ok("wait", r.Table("go").Wait(r.WaitOpts{WaitFor: "all_replicas_ready", Timeout: 60}).Exec(session))
	writes(session)
	indexes(session)
	streams(session)
	ok("table_drop", r.TableDrop("go").Exec(session))
}

type document struct {
	ID   int               `rethinkdb:"id"`
	N    int               `rethinkdb:"n"`
	Tags []string          `rethinkdb:"tags,omitempty"`
	At   time.Time         `rethinkdb:"at,omitempty"`
	More map[string]string `rethinkdb:"more,omitempty"`
}

func write(session *r.Session, what string, term r.Term) r.WriteResponse {
	response, err := term.RunWrite(session)
	ok(what, err)
	return response
}

func number(session *r.Session, what string, term r.Term) int {
	var found int
	ok(what, term.ReadOne(&found, session))
	return found
}

func writes(session *r.Session) {
	table := r.Table("go")
	moment := time.Date(2026, 11, 24, 12, 30, 0, 0, time.UTC)
	first := document{1, 1, []string{"a", "b"}, moment, map[string]string{"x": "y"}}
	equal("insert", write(session, "insert", table.Insert(first)).Inserted, 1)
	var found document
	ok("get", table.Get(1).ReadOne(&found, session))
	found.At = found.At.UTC()
	equal("what was inserted", found, first)
	_, err := table.Insert(document{ID: 1}).RunWrite(session)
	if err == nil || !strings.Contains(err.Error(), "Duplicate primary key") {
		fail("a key twice: %v", err)
	}
	conflict := r.InsertOpts{Conflict: "update", ReturnChanges: true}
	changed := write(session, "conflict", table.Insert(map[string]int{"id": 1, "n": 5}, conflict))
	equal("replaced by a conflict", []int{changed.Replaced, len(changed.Changes)}, []int{1, 1})
	add := func(key, old, new r.Term) interface{} {
		return old.Merge(map[string]interface{}{"n": old.Field("n").Add(new.Field("n"))})
	}
	write(session, "conflict", table.Insert(map[string]int{"id": 1, "n": 6}, r.InsertOpts{Conflict: add}))
	equal("the sum", number(session, "the sum", table.Get(1).Field("n")), 11)
	update := table.Get(1).Update(map[string]interface{}{"n": r.Row.Field("n").Mul(2)})
	equal("update", write(session, "update", update).Replaced, 1)
	equal("unchanged", write(session, "update", table.Get(1).Update(map[string]int{"n": 22})).Unchanged, 1)
	equal("skipped", write(session, "update", table.Get(9).Update(map[string]int{"n": 22})).Skipped, 1)
	equal("replace", write(session, "replace", table.Get(1).Replace(r.Row.Without("tags", "more"))).Replaced, 1)
	equal("delete", write(session, "delete", table.Get(1).Delete(r.DeleteOpts{Durability: "soft"})).Deleted, 1)
	for start := 0; start < 2000; start += 500 {
		var batch []document
		for id := start; id < start+500; id++ {
			batch = append(batch, document{ID: id, N: id % 10, Tags: []string{fmt.Sprintf("t%d", id%3), "all"}})
		}
		equal("a batch", write(session, "a batch", table.Insert(batch)).Inserted, 500)
	}
	each := r.Range(10).ForEach(func(row r.Term) interface{} { return table.Get(row).Update(map[string]bool{"each": true}) })
	equal("for_each", write(session, "for_each", each).Replaced, 10)
	ok("noreply", table.Get(0).Update(map[string]int{"quiet": 1}).Exec(session, r.ExecOpts{NoReply: true}))
	ok("noreply_wait", session.NoReplyWait())
	// The driver has several connections, and waits for the queries of one of them only.
	for end := time.Now().Add(20 * time.Second); number(session, "noreply", table.Get(0).Field("quiet").Default(0)) != 1; {
		if time.Now().After(end) {
			fail("a write without an answer was not carried out")
		}
	}
}

func indexes(session *r.Session) {
	table := r.Table("go")
	ok("index_create", table.IndexCreate("n").Exec(session))
	ok("index_create", table.IndexCreate("tags", r.IndexCreateOpts{Multi: true}).Exec(session))
	both := func(row r.Term) interface{} { return []interface{}{row.Field("n"), row.Field("id")} }
	ok("index_create", table.IndexCreateFunc("both", both).Exec(session))
	ok("index_wait", table.IndexWait().Exec(session))
	equal("simple", number(session, "simple", table.GetAllByIndex("n", 3, 4).Count()), 400)
	equal("multi", number(session, "multi", table.GetAllByIndex("tags", "t1").Count()), 667)
	between := table.Between([]int{3, 0}, []int{3, 100}, r.BetweenOpts{Index: "both"})
	equal("compound", number(session, "compound", between.Count()), 10)
	var ids []int
	ok("descending", table.OrderBy(r.OrderByOpts{Index: r.Desc("both")}).Limit(3).Field("id").ReadAll(&ids, session))
	equal("descending", ids, []int{1999, 1989, 1979})
	ok("index_rename", table.IndexRename("n", "m").Exec(session))
	ok("index_drop", table.IndexDrop("m").Exec(session))
	_, err := table.GetAllByIndex("n", 3).Run(session)
	if err == nil || !strings.Contains(err.Error(), "was not found") {
		fail("no index: %v", err)
	}
}

func streams(session *r.Session) {
	cursor, err := r.Table("go").Run(session, r.RunOpts{MaxBatchRows: 50})
	ok("a stream", err)
	seen, row := map[int]bool{}, document{}
	for cursor.Next(&row) {
		seen[row.ID] = true
	}
	ok("its end", cursor.Err())
	equal("all rows of a stream", len(seen), 2000)
	cursor, err = r.Table("go").OrderBy(r.OrderByOpts{Index: "id"}).Run(session, r.RunOpts{MaxBatchRows: 5})
	ok("a stream in order", err)
	for id := 0; id < 12; id++ {
		equal("a row", cursor.Next(&row), true)
		equal("in order", row.ID, id)
	}
	ok("a stream that is closed early", cursor.Close())
	var groups []struct {
		Group     int `rethinkdb:"group"`
		Reduction int `rethinkdb:"reduction"`
	}
	ok("group", r.Table("go").Group("n").Count().Ungroup().ReadAll(&groups, session))
	equal("groups", []int{len(groups), groups[3].Reduction}, []int{10, 200})
}

// Writes documents in several threads. What was acknowledged must be there in the end.
func load(addresses []string, password string) {
	const writers = 4
	session := connect(addresses, password)
	ok("table_create", r.TableCreate("load", r.TableCreateOpts{Shards: 4, Replicas: 3}).Exec(session))
	ok("wait", r.Table("load").Wait(r.WaitOpts{WaitFor: "all_replicas_ready", Timeout: 60}).Exec(session))
	stop := make(chan struct{})
	var running sync.WaitGroup
	acknowledged, failed, late := make([][]string, writers), make([]int, writers), make([]int, writers)
	var killed time.Time
	var lock sync.Mutex
	for writer := 0; writer < writers; writer++ {
		running.Add(1)
		go func(writer int) {
			defer running.Done()
			for count := 0; ; count++ {
				select {
				case <-stop:
					return
				default:
				}
				id := fmt.Sprintf("%d-%d", writer, count)
				response, err := r.Table("load").Insert(map[string]interface{}{"id": id}).RunWrite(session)
				if err != nil || response.Inserted != 1 {
					failed[writer]++
					continue
				}
				acknowledged[writer] = append(acknowledged[writer], id)
				lock.Lock()
				if !killed.IsZero() && time.Since(killed) > time.Second {
					late[writer]++
				}
				lock.Unlock()
			}
		}(writer)
	}
	fmt.Println("writing")
	one := make([]byte, 1)
	os.Stdin.Read(one)
	lock.Lock()
	killed = time.Now()
	lock.Unlock()
	fmt.Println("told")
	io.ReadAll(os.Stdin)
	close(stop)
	running.Wait()
	total, failures, afterwards := 0, 0, 0
	for writer := range acknowledged {
		total, failures, afterwards = total+len(acknowledged[writer]), failures+failed[writer], afterwards+late[writer]
	}
	var ids []string
	end := time.Now().Add(30 * time.Second)
	for {
		err := r.Table("load").Field("id").ReadAll(&ids, session)
		if err == nil {
			break
		}
		if time.Now().After(end) {
			fail("the table cannot be read: %v", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	found := map[string]bool{}
	for _, id := range ids {
		found[id] = true
	}
	for _, writer := range acknowledged {
		for _, id := range writer {
			if !found[id] {
				fail("%s was acknowledged, and is gone", id)
			}
		}
	}
	fmt.Printf("%d writes were acknowledged, %d of them after the kill, %d failed\n", total, afterwards, failures)
	if total < 100 || afterwards < 20 {
		fail("the driver did not go on")
	}
}
