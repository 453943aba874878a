// go-redis in cluster mode.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const writers = 4

var digits = regexp.MustCompile(`\d+`)

type seen struct {
	sync.Mutex
	keys     []string
	counters [writers]int
	errors   map[string]int
}

func (s *seen) fail(err error) {
	text := digits.ReplaceAllString(err.Error(), "N")
	if len(text) > 160 {
		text = text[:160]
	}
	s.Lock()
	s.errors[text]++
	s.Unlock()
}

func main() {
	seconds, _ := strconv.Atoi(os.Args[1])
	until := time.Now().Add(time.Duration(seconds) * time.Second)
	options := redis.ClusterOptions{Username: "app", Password: "secret"}
	for _, port := range os.Args[2:] {
		options.Addrs = append(options.Addrs, "127.0.0.1:"+port)
	}
	client := redis.NewClusterClient(&options)
	run, ctx := strconv.FormatInt(time.Now().UnixNano(), 36), context.Background()
	s := &seen{errors: map[string]int{}}
	counter := func(writer int) string { return fmt.Sprintf("counter:%s:%d", run, writer) }
	var done sync.WaitGroup
	for writer := 0; writer < writers; writer++ {
		done.Add(1)
		go func(writer int) {
			defer done.Done()
			for number := 0; time.Now().Before(until); number++ {
				time.Sleep(2 * time.Millisecond)
				key := fmt.Sprintf("%s:%d:%d", run, writer, number)
				if err := client.Set(ctx, key, key, 0).Err(); err != nil {
					s.fail(err)
					continue
				}
				s.Lock()
				s.keys = append(s.keys, key)
				s.Unlock()
				if err := client.Incr(ctx, counter(writer)).Err(); err != nil {
					s.fail(err)
					continue
				}
				s.counters[writer]++
			}
		}(writer)
	}
	done.Wait()
	deadline := time.Now().Add(time.Minute)
	read := func(key string) string {
		for {
			value, err := client.Get(ctx, key).Result()
			if err == nil || err == redis.Nil {
				return value
			}
			if time.Now().After(deadline) {
				panic(err)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	lost, acknowledged := 0, len(s.keys)
	for _, key := range s.keys {
		if read(key) != key {
			lost++
		}
	}
	for writer, count := range s.counters {
		acknowledged += count
		if value, _ := strconv.Atoi(read(counter(writer))); value < count {
			lost += count - value
		}
	}
	out, _ := json.Marshal(map[string]any{"acknowledged": acknowledged, "lost": lost, "errors": s.errors})
	fmt.Println(string(out))
}
