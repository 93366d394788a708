// The Go client of Apache Pegasus against a cluster: `acceptance META...` makes every call that it has, and `load META...`
// writes until its standard input ends while the test kills nodes, and says what was acknowledged.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/XiaoMi/pegasus-go-client/admin"
	"github.com/XiaoMi/pegasus-go-client/pegasus"
)

func main() {
	if len(os.Args) < 3 {
		fail("usage: %s acceptance|load META...", os.Args[0])
	}
	switch os.Args[1] {
	case "acceptance":
		acceptance(os.Args[2:])
	case "load":
		load(os.Args[2:])
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

func background() context.Context {
	ctx, _ := context.WithTimeout(context.Background(), 20*time.Second)
	return ctx
}

// For what must fail: the client tries again until its time is over.
func short() context.Context {
	ctx, _ := context.WithTimeout(context.Background(), 2*time.Second)
	return ctx
}

func b(text string) []byte { return []byte(text) }

func bs(texts ...string) [][]byte {
	var all [][]byte
	for _, text := range texts {
		all = append(all, b(text))
	}
	return all
}

func acceptance(metas []string) {
	tables := admin.NewClient(admin.Config{MetaServers: metas})
	ok("create", tables.CreateTable(background(), "go_acceptance", 4))
	if !has(tables, "go_acceptance") {
		fail("the new table is not listed")
	}
	client := pegasus.NewClient(pegasus.Config{MetaServers: metas})
	table, err := client.OpenTable(background(), "go_acceptance")
	ok("open", err)
	single(table)
	several(table)
	conditional(table)
	scans(table)
	administration(metas, "go_acceptance", 4)
	ok("close the table", table.Close())
	ok("close the client", client.Close())
	if _, err := pegasus.NewClient(pegasus.Config{MetaServers: metas}).OpenTable(short(), "no_such"); err == nil {
		fail("a table that does not exist was opened")
	}
	ok("drop", tables.DropTable(background(), "go_acceptance"))
	if has(tables, "go_acceptance") {
		fail("the dropped table is listed")
	}
}

func has(tables admin.Client, name string) bool {
	all, err := tables.ListTables(background())
	ok("list", err)
	for _, table := range all {
		if table.Name == name {
			return true
		}
	}
	return false
}

func single(table pegasus.TableConnector) {
	value, err := table.Get(background(), b("h"), b("s"))
	ok("get of nothing", err)
	equal("get of nothing", len(value), 0)
	ok("set", table.Set(background(), b("h"), b("s"), b("v")))
	value, err = table.Get(background(), b("h"), b("s"))
	ok("get", err)
	equal("get", string(value), "v")
	seconds, err := table.TTL(background(), b("h"), b("s"))
	ok("ttl", err)
	equal("ttl without an end", seconds, -1)
	ok("set with ttl", table.SetTTL(background(), b("h"), b("s"), b("v"), 100*time.Second))
	seconds, err = table.TTL(background(), b("h"), b("s"))
	ok("ttl", err)
	if seconds < 95 || seconds > 100 {
		fail("ttl: %d", seconds)
	}
	there, err := table.Exist(background(), b("h"), b("s"))
	ok("exist", err)
	equal("exist", there, true)
	ok("del", table.Del(background(), b("h"), b("s")))
	there, err = table.Exist(background(), b("h"), b("s"))
	ok("exist", err)
	equal("exist after del", there, false)
	large := bytes.Repeat(b("x"), 900<<10)
	ok("set of a large value", table.Set(background(), b("large"), b(""), large))
	value, err = table.Get(background(), b("large"), b(""))
	ok("get of a large value", err)
	equal("large value", bytes.Equal(value, large), true)
	if table.Set(short(), b("large"), b(""), bytes.Repeat(b("x"), 80<<20)) == nil {
		fail("a value beyond the limit was taken")
	}
	for i, wanted := range []int64{5, 10, 3} {
		number, err := table.Incr(background(), b("counter"), b("s"), []int64{5, 5, -7}[i])
		ok("incr", err)
		equal("incr", number, wanted)
	}
	ok("set", table.Set(background(), b("counter"), b("text"), b("text")))
	if _, err := table.Incr(short(), b("counter"), b("text"), 1); err == nil {
		fail("text was counted up")
	}
	found, err := table.BatchGet(background(), []pegasus.CompositeKey{
		{HashKey: b("counter"), SortKey: b("s")}, {HashKey: b("nobody"), SortKey: b("s")},
	})
	ok("batch get", err)
	equal("batch get", found, [][]byte{b("3"), nil})
}

func keys(records []*pegasus.KeyValue) string {
	var all []string
	for _, record := range records {
		all = append(all, string(record.SortKey)+"="+string(record.Value))
	}
	return strings.Join(all, " ")
}

func several(table pegasus.TableConnector) {
	ok("multi set", table.MultiSet(background(), b("m"), bs("a", "b", "c", "d"), bs("1", "2", "3", "4")))
	ok("multi set with ttl", table.MultiSetOpt(background(), b("m"), bs("e"), bs("5"), 100*time.Second))
	check := func(what, wanted string, whole bool, records []*pegasus.KeyValue, all bool, err error) {
		ok(what, err)
		equal(what, keys(records), wanted)
		equal(what+": all", all, whole)
	}
	records, all, err := table.MultiGet(background(), b("m"), bs("c", "a", "nothing"))
	check("multi get", "a=1 c=3", true, sorted(records), all, err)
	records, all, err = table.MultiGetRange(background(), b("m"), b("b"), b("d"))
	check("range", "b=2 c=3", true, records, all, err)
	options := func() *pegasus.MultiGetOptions {
		return &pegasus.MultiGetOptions{StartInclusive: true, StopInclusive: true}
	}
	records, all, err = table.MultiGetRangeOpt(background(), b("m"), b(""), b(""), options())
	check("whole range", "a=1 b=2 c=3 d=4 e=5", true, records, all, err)
	limited := options()
	limited.MaxFetchCount = 2
	records, all, err = table.MultiGetRangeOpt(background(), b("m"), b("b"), b("d"), limited)
	check("limited range", "b=2 c=3", false, records, all, err)
	limited.Reverse = true
	records, all, err = table.MultiGetRangeOpt(background(), b("m"), b("b"), b("d"), limited)
	check("reverse range", "c=3 d=4", false, records, all, err)
	bare := options()
	bare.NoValue = true
	bare.SortKeyFilter = pegasus.Filter{Type: pegasus.FilterTypeMatchPrefix, Pattern: b("c")}
	records, all, err = table.MultiGetRangeOpt(background(), b("m"), b(""), b(""), bare)
	check("filtered range", "c=", true, records, all, err)
	count, err := table.SortKeyCount(background(), b("m"))
	ok("count", err)
	equal("count", count, int64(5))
	ok("multi del", table.MultiDel(background(), b("m"), bs("a", "nothing")))
	count, err = table.SortKeyCount(background(), b("m"))
	ok("count", err)
	equal("count after multi del", count, int64(4))
}

func sorted(records []*pegasus.KeyValue) []*pegasus.KeyValue {
	sort.Slice(records, func(i, j int) bool { return bytes.Compare(records[i].SortKey, records[j].SortKey) < 0 })
	return records
}

func conditional(table pegasus.TableConnector) {
	wanted := &pegasus.CheckAndSetOptions{ReturnCheckValue: true}
	cas := func(kind pegasus.CheckType, operand, value string) *pegasus.CheckAndSetResult {
		result, err := table.CheckAndSet(background(), b("cas"), b("k"), kind, b(operand), b("k"), b(value), wanted)
		ok("check and set", err)
		return result
	}
	first := cas(pegasus.CheckTypeValueNotExist, "", "1")
	equal("not there", first.SetSucceed, true)
	equal("not there", first.CheckValueExist, false)
	again := cas(pegasus.CheckTypeValueNotExist, "", "2")
	equal("there", again.SetSucceed, false)
	equal("there", string(again.CheckValue), "1")
	equal("bytes", cas(pegasus.CheckTypeBytesEqual, "1", "10").SetSucceed, true)
	equal("integers", cas(pegasus.CheckTypeIntGreaterOrEqual, "9", "text").SetSucceed, true)
	equal("prefix", cas(pegasus.CheckTypeMatchPrefix, "te", "").SetSucceed, true)
	equal("empty", cas(pegasus.CheckTypeValueNotExistOrEmpty, "", "end").SetSucceed, true)
	value, err := table.Get(background(), b("cas"), b("k"))
	ok("get", err)
	equal("the last one", string(value), "end")
}

func scans(table pegasus.TableConnector) {
	wanted := map[string]string{}
	for i := 0; i < 50; i++ {
		for j := 0; j < 7; j++ {
			hash, sort := fmt.Sprintf("scan-%02d", i), fmt.Sprintf("%d", j)
			wanted[hash+"/"+sort] = fmt.Sprintf("%d", i*j)
			ok("set", table.Set(background(), b(hash), b(sort), b(wanted[hash+"/"+sort])))
		}
	}
	options := pegasus.NewScanOptions()
	options.BatchSize = 3
	options.HashKeyFilter = pegasus.Filter{Type: pegasus.FilterTypeMatchPrefix, Pattern: b("scan-")}
	scanners, err := table.GetUnorderedScanners(background(), 3, options)
	ok("unordered scanners", err)
	found := map[string]string{}
	for _, scanner := range scanners {
		drain(scanner, func(hash, sort, value string) {
			if _, twice := found[hash+"/"+sort]; twice {
				fail("%s/%s was returned twice", hash, sort)
			}
			found[hash+"/"+sort] = value
		})
	}
	equal("a scan of everything", found, wanted)
	ranged := pegasus.NewScanOptions()
	ranged.BatchSize = 2
	scanner, err := table.GetScanner(background(), b("scan-07"), b("2"), b("6"), ranged)
	ok("scanner", err)
	var sorts []string
	drain(scanner, func(_, sort, _ string) { sorts = append(sorts, sort) })
	equal("a scan of one hash key", sorts, []string{"2", "3", "4", "5"})
}

func drain(scanner pegasus.Scanner, take func(hash, sort, value string)) {
	for {
		completed, hash, sort, value, err := scanner.Next(background())
		ok("next", err)
		if completed {
			ok("close the scanner", scanner.Close())
			return
		}
		take(string(hash), string(sort), string(value))
	}
}

// Each writer sets keys of its own with values that count up. When the input ends, every key must hold a value that is at
// least the last acknowledged one. Prints the longest time that a writer went without an acknowledged write.
func load(metas []string) {
	client := pegasus.NewClient(pegasus.Config{MetaServers: metas})
	table, err := client.OpenTable(background(), "go_load")
	ok("open", err)
	const writers = 16
	var acknowledged [writers]int64
	var stop int32
	var group sync.WaitGroup
	var lock sync.Mutex
	var failures, writes int
	var last [writers]time.Time
	longest := time.Duration(0)
	for writer := 0; writer < writers; writer++ {
		group.Add(1)
		go func(writer int) {
			defer group.Done()
			last[writer] = time.Now()
			for number := int64(1); atomic.LoadInt32(&stop) == 0; number++ {
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
				err := table.Set(ctx, b(fmt.Sprintf("writer-%d", writer)), b("s"), b(fmt.Sprintf("%020d", number)))
				cancel()
				lock.Lock()
				if err == nil {
					acknowledged[writer] = number
					writes++
					if gap := time.Since(last[writer]); gap > longest {
						longest = gap
					}
					last[writer] = time.Now()
				} else {
					failures++
				}
				lock.Unlock()
			}
		}(writer)
	}
	fmt.Println("writing")
	os.Stdin.Read(make([]byte, 1))
	atomic.StoreInt32(&stop, 1)
	group.Wait()
	for writer, number := range acknowledged {
		value, err := table.Get(background(), b(fmt.Sprintf("writer-%d", writer)), b("s"))
		ok("get", err)
		if string(value) < fmt.Sprintf("%020d", number) {
			fail("writer %d: %d was acknowledged, and there is %s", writer, number, value)
		}
		// The client gives a node up after the five seconds that each write may take.
		if silence := time.Since(last[writer]); silence > 8*time.Second {
			fail("writer %d: the last of %d writes was %v ago: the client did not recover", writer, number, silence)
		}
	}
	fmt.Printf("%d writes, %d failed, longest gap %v\n", writes, failures, longest)
}
