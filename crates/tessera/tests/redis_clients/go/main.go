// go-redis on the default table of a cluster, whose keys are in many partitions: `client PORT...`, the Redis ports of all nodes; with
// `cluster USER PASSWORD PORT...` in cluster mode, on the default table of that user.
package main

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"strings"

	"github.com/redis/go-redis/v9"
)

var background = context.Background()

func main() {
	if len(os.Args) < 3 {
		fail("usage: client PORT PORT... | client cluster USER PASSWORD PORT...")
	}
	if os.Args[1] == "cluster" {
		inClusterMode(os.Args[2], os.Args[3], os.Args[4:])
		return
	}
	var nodes []*redis.Client
	for _, port := range os.Args[1:] {
		nodes = append(nodes, redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + port}))
	}
	one, other := nodes[0], nodes[len(nodes)-1]
	value(one.FlushDB(background).Result())
	transactions(nodes)
	commandsOfSeveralKeys(one, other)
	watched(one, other)
	discarded(one)
	errorsInTransactions(one, other)
	bank(nodes)
}

// fail shows where the program was, too.
func fail(format string, arguments ...any) {
	panic(fmt.Sprintf(format, arguments...))
}

// value is what a call returns that must not fail.
func value[T any](found T, err error) T {
	if err != nil {
		fail("%T: %v", found, err)
	}
	return found
}

func equal[T any](what string, found, wanted T) {
	if !reflect.DeepEqual(found, wanted) {
		fail("%s: found %#v, wanted %#v", what, found, wanted)
	}
}

func fails(what string, err error, words string) {
	if err == nil || !strings.Contains(err.Error(), words) {
		fail("%s: found %v, wanted an error with %q", what, err, words)
	}
}

// keys returns names of so many keys that they are in every partition.
func keys(name string) []string {
	names := make([]string, 40)
	for number := range names {
		names[number] = fmt.Sprintf("%s%d", name, number)
	}
	return names
}
