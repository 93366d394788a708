package main

import (
	"fmt"

	"github.com/redis/go-redis/v9"
)

// transactions does everything through one node and reads it through all.
func transactions(nodes []*redis.Client) {
	names := keys("key")
	var sums []*redis.IntCmd
	var hash *redis.MapStringStringCmd
	var all *redis.SliceCmd
	var nothing *redis.StringCmd
	commands, err := nodes[0].TxPipelined(background, func(pipe redis.Pipeliner) error {
		for number, name := range names {
			pipe.Set(background, name, number, 0)
			sums = append(sums, pipe.IncrBy(background, name, 100))
		}
		pipe.HSet(background, "hash", "a", "1", "b", "2")
		hash = pipe.HGetAll(background, "hash")
		all = pipe.MGet(background, names...)
		nothing = pipe.Get(background, "none")
		return nil
	})
	// go-redis returns the first error of all commands, and takes a null for one.
	equal("EXEC", err, error(redis.Nil))
	equal("the number of replies", len(commands), 2*len(names)+4)
	var wanted []any
	for number, sum := range sums {
		equal("INCRBY", sum.Val(), int64(100+number))
		wanted = append(wanted, fmt.Sprint(100+number))
	}
	equal("HGETALL", hash.Val(), map[string]string{"a": "1", "b": "2"})
	equal("MGET", all.Val(), wanted)
	equal("GET of nothing", nothing.Err(), error(redis.Nil))
	for _, node := range nodes {
		equal("MGET of what was written", value(node.MGet(background, names...).Result()), wanted)
		reads := value(node.TxPipelined(background, func(pipe redis.Pipeliner) error {
			for _, name := range names {
				pipe.Get(background, name)
			}
			return nil
		}))
		for number, read := range reads {
			equal("GET in a transaction", read.(*redis.StringCmd).Val(), wanted[number].(string))
		}
	}
}

func commandsOfSeveralKeys(one, other *redis.Client) {
	names := keys("key")
	pairs := func(names []string) (pairs []any) {
		for _, name := range names {
			pairs = append(pairs, name, "value of "+name)
		}
		return pairs
	}
	equal("MSET", value(one.MSet(background, pairs(names)...).Result()), "OK")
	for number, found := range value(other.MGet(background, names...).Result()) {
		equal("MGET", found, any("value of "+names[number]))
	}
	equal("MSETNX where a key is there", value(other.MSetNX(background, "new", "n", names[7], "n").Result()), false)
	equal("EXISTS", value(one.Exists(background, append(names, "new")...).Result()), 40)
	equal("MSETNX", value(other.MSetNX(background, pairs(keys("new"))...).Result()), true)
	equal("DEL", value(one.Del(background, keys("new")...).Result()), 40)
	for _, name := range names {
		renamed := "renamed " + name
		equal("RENAME", value(other.Rename(background, name, renamed).Result()), "OK")
		equal("COPY", value(one.Copy(background, renamed, name, 0, false).Result()), 1)
		equal("COPY where a key is there", value(one.Copy(background, name, renamed, 0, false).Result()), 0)
		equal("RENAMENX where a key is there", value(other.RenameNX(background, name, renamed).Result()), false)
		both := []any{"value of " + name, "value of " + name}
		equal("MGET of both", value(one.MGet(background, name, renamed).Result()), both)
		equal("UNLINK", value(other.Unlink(background, renamed, "none").Result()), 1)
	}
	fails("RENAME of nothing", one.Rename(background, "none", names[0]).Err(), "no such key")
}

// watched increments two keys, and has another connection write one of them meanwhile, or not.
func watched(one, other *redis.Client) {
	attempts := 0
	increment := func(meanwhile func()) error {
		attempts++
		return one.Watch(background, func(tx *redis.Tx) error {
			first, second := value(tx.Get(background, "a").Int()), value(tx.Get(background, "b").Int())
			meanwhile()
			_, err := tx.TxPipelined(background, func(pipe redis.Pipeliner) error {
				pipe.Set(background, "a", first+1, 0)
				pipe.Set(background, "b", second+1, 0)
				return nil
			})
			return err
		}, "a", "b", "missing")
	}
	for _, key := range []string{"a", "b", "missing"} {
		value(one.MSet(background, "a", 1, "b", 2).Result())
		value(one.Del(background, "missing").Result())
		equal("EXEC", increment(func() {}), nil)
		equal("EXEC after a write", increment(func() { value(other.Set(background, key, 10, 0).Result()) }), error(redis.TxFailedErr))
		equal("EXEC once more", increment(func() {}), nil)
	}
	equal("all attempts", attempts, 9)
	equal("what is there", value(other.MGet(background, "a", "b").Result()), []any{"3", "4"})
	value(one.Del(background, "a", "b", "missing").Result())
	value(one.MSet(background, "a", 1, "b", 2).Result())
	equal("EXEC after UNWATCH", one.Watch(background, func(tx *redis.Tx) error {
		value(other.Incr(background, "b").Result())
		value(tx.Unwatch(background).Result())
		_, err := tx.TxPipelined(background, func(pipe redis.Pipeliner) error { return pipe.Incr(background, "a").Err() })
		return err
	}, "a", "b"), nil)
	equal("what UNWATCH allowed", value(other.MGet(background, "a", "b").Result()), []any{"2", "3"})
}

// discarded sends MULTI and DISCARD itself, since Discard of a pipeline of go-redis only forgets what it has not sent.
func discarded(client *redis.Client) {
	value(client.MSet(background, "a", 1, "b", 2).Result())
	connection := client.Conn()
	defer connection.Close()
	equal("MULTI", value(connection.Do(background, "MULTI").Text()), "OK")
	equal("SET", value(connection.Do(background, "SET", "a", 10).Text()), "QUEUED")
	equal("INCR", value(connection.Do(background, "INCR", "b").Text()), "QUEUED")
	equal("DISCARD", value(connection.Do(background, "DISCARD").Text()), "OK")
	equal("nothing was done", value(connection.MGet(background, "a", "b").Result()), []any{"1", "2"})
	fails("EXEC of nothing", connection.Do(background, "EXEC").Err(), "EXEC without MULTI")
}

func errorsInTransactions(one, other *redis.Client) {
	value(one.Del(background, "hash", "text", "first", "last").Result())
	var wrong, number *redis.IntCmd
	_, err := one.TxPipelined(background, func(pipe redis.Pipeliner) error {
		pipe.Set(background, "first", "done", 0)
		pipe.HSet(background, "hash", "field", 1)
		wrong = pipe.Incr(background, "hash")
		pipe.Set(background, "text", "text", 0)
		number = pipe.Incr(background, "text")
		pipe.Set(background, "last", "done", 0)
		return nil
	})
	fails("EXEC", err, "WRONGTYPE")
	fails("INCR of a hash", wrong.Err(), "WRONGTYPE")
	fails("INCR of a text", number.Err(), "not an integer")
	equal("the others were done", value(other.MGet(background, "first", "text", "last").Result()), []any{"done", "text", "done"})
	value(one.Del(background, "first", "last").Result())
	_, err = one.TxPipelined(background, func(pipe redis.Pipeliner) error {
		pipe.Set(background, "first", "not done", 0)
		pipe.Do(background, "NOSUCH", "text")
		pipe.Set(background, "last", "not done", 0)
		return nil
	})
	fails("EXEC after a command that there is not", err, "EXECABORT")
	equal("nothing was done", value(other.MGet(background, "first", "last").Result()), []any{nil, nil})
	_, err = one.TxPipelined(background, func(pipe redis.Pipeliner) error { return pipe.Set(background, "last", "done", 0).Err() })
	equal("the connection goes on", err, nil)
}
