package main

import (
	"errors"
	"fmt"
	"math/rand"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"
)

const (
	accounts  = 12
	opening   = 1000
	transfers = 40
)

// bank has two tellers on every node move small amounts between random accounts, so that amounts come back to what they were, while an
// auditor on every node looks at all accounts.
func bank(nodes []*redis.Client) {
	for number := range accounts {
		value(nodes[0].Set(background, account(number), opening, 0).Result())
	}
	var tellers, auditors sync.WaitGroup
	closed := make(chan struct{})
	for seed, node := range append(nodes, nodes...) {
		random := rand.New(rand.NewSource(int64(seed)))
		tellers.Go(func() {
			for range transfers {
				transfer(node, random)
			}
		})
	}
	for _, node := range nodes {
		auditors.Go(func() {
			for {
				audit(node)
				select {
				case <-closed:
					return
				default:
				}
			}
		})
	}
	tellers.Wait()
	close(closed)
	auditors.Wait()
	for _, node := range nodes {
		audit(node)
	}
}

func account(number int) string { return fmt.Sprintf("account%d", number) }

// transfer tries until no other teller has changed one of the two accounts meanwhile.
func transfer(node *redis.Client, random *rand.Rand) {
	source := random.Intn(accounts)
	from, to, amount := account(source), account((source+1+random.Intn(accounts-1))%accounts), 1+random.Intn(3)
	for {
		err := node.Watch(background, func(tx *redis.Tx) error {
			held, err := tx.MGet(background, from, to).Result()
			if err != nil {
				return err
			}
			_, err = tx.TxPipelined(background, func(pipe redis.Pipeliner) error {
				pipe.Set(background, from, number(held[0])-amount, 0)
				pipe.Set(background, to, number(held[1])+amount, 0)
				return nil
			})
			return err
		}, from, to)
		if err == nil {
			return
		}
		if !errors.Is(err, redis.TxFailedErr) {
			fail("a transfer: %v", err)
		}
	}
}

func audit(node *redis.Client) {
	held := value(node.TxPipelined(background, func(pipe redis.Pipeliner) error {
		for number := range accounts {
			pipe.Get(background, account(number))
		}
		return nil
	}))
	sum := 0
	for _, read := range held {
		sum += number(read.(*redis.StringCmd).Val())
	}
	equal("the sum of all accounts", sum, accounts*opening)
}

func number(text any) int {
	return value(strconv.Atoi(text.(string)))
}
