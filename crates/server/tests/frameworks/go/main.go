// Programs of Go run against a server, unchanged: locks, rate limits, queues, client-side caching.
//
//	go run . PORT
//
// Prints a line per program, with ok or the error. The exit status is 1 if one failed.
package main

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

var address string

func until(condition func() bool, what string) error {
	for end := time.Now().Add(30 * time.Second); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("%s: not within 30 s", what)
		}
	}
	return nil
}

func useRedsync(ctx context.Context) error {
	client := redis.NewClient(&redis.Options{Addr: address})
	defer client.Close()
	locks := redsync.New(goredis.NewPool(client))
	one, other := locks.NewMutex("redsync:a"), locks.NewMutex("redsync:a", redsync.WithTries(1))
	if err := one.LockContext(ctx); err != nil {
		return err
	}
	if err := other.TryLockContext(ctx); err == nil {
		return fmt.Errorf("locked twice")
	}
	if ok, err := one.ExtendContext(ctx); !ok || err != nil {
		return fmt.Errorf("extend: %v %v", ok, err)
	}
	if ok, err := one.UnlockContext(ctx); !ok || err != nil {
		return fmt.Errorf("unlock: %v %v", ok, err)
	}
	return other.LockContext(ctx)
}

func useRedisRate(ctx context.Context) error {
	client := redis.NewClient(&redis.Options{Addr: address})
	defer client.Close()
	limiter := redis_rate.NewLimiter(client)
	allowed := 0
	for range 5 {
		result, err := limiter.Allow(ctx, "me", redis_rate.PerMinute(3))
		if err != nil {
			return err
		}
		allowed += result.Allowed
	}
	if allowed != 3 {
		return fmt.Errorf("allowed %d of 5", allowed)
	}
	if result, err := limiter.AllowAtMost(ctx, "you", redis_rate.PerMinute(3), 5); err != nil || result.Allowed != 3 {
		return fmt.Errorf("at most: %v %v", result, err)
	}
	return limiter.Reset(ctx, "me")
}

func useAsynq(context.Context) error {
	option := asynq.RedisClientOpt{Addr: address}
	client := asynq.NewClient(option)
	defer client.Close()
	var done, failures atomic.Int32
	mux := asynq.NewServeMux()
	mux.HandleFunc("add", func(context.Context, *asynq.Task) error { done.Add(1); return nil })
	mux.HandleFunc("flaky", func(context.Context, *asynq.Task) error {
		if failures.Add(1) == 1 {
			return fmt.Errorf("as asked")
		}
		done.Add(1)
		return nil
	})
	server := asynq.NewServer(option, asynq.Config{
		Concurrency:              4,
		LogLevel:                 asynq.FatalLevel,
		RetryDelayFunc:           func(int, error, *asynq.Task) time.Duration { return 100 * time.Millisecond },
		DelayedTaskCheckInterval: 200 * time.Millisecond,
	})
	if err := server.Start(mux); err != nil {
		return err
	}
	defer server.Shutdown()
	for at := range 20 {
		if _, err := client.Enqueue(asynq.NewTask("add", []byte(fmt.Sprint(at)))); err != nil {
			return err
		}
	}
	if _, err := client.Enqueue(asynq.NewTask("flaky", nil)); err != nil {
		return err
	}
	if _, err := client.Enqueue(asynq.NewTask("add", nil), asynq.ProcessIn(time.Second), asynq.Retention(time.Minute)); err != nil {
		return err
	}
	unique := asynq.NewTask("add", []byte("unique"))
	if _, err := client.Enqueue(unique, asynq.Unique(time.Minute), asynq.ProcessIn(time.Hour)); err != nil {
		return err
	}
	if _, err := client.Enqueue(unique, asynq.Unique(time.Minute)); err == nil {
		return fmt.Errorf("a unique task was enqueued twice")
	}
	if err := until(func() bool { return done.Load() == 22 }, "tasks"); err != nil {
		return fmt.Errorf("%w: %d", err, done.Load())
	}
	inspector := asynq.NewInspector(option)
	defer inspector.Close()
	info, err := inspector.GetQueueInfo("default")
	if err != nil || info.Processed < 22 || info.Scheduled != 1 {
		return fmt.Errorf("inspector: %+v %v", info, err)
	}
	return nil
}

func useRueidis(ctx context.Context) error {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{address}})
	if err != nil {
		return err
	}
	defer client.Close()
	writer, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{address}, DisableCache: true})
	if err != nil {
		return err
	}
	defer writer.Close()
	set := func(value string) error {
		return writer.Do(ctx, writer.B().Set().Key("cached").Value(value).Build()).Error()
	}
	get := func() rueidis.RedisResult {
		return client.DoCache(ctx, client.B().Get().Key("cached").Cache(), time.Minute)
	}
	if err := set("1"); err != nil {
		return err
	}
	first, second := get(), get()
	if text, err := second.ToString(); err != nil || text != "1" || first.IsCacheHit() || !second.IsCacheHit() {
		return fmt.Errorf("second read: %q, hit %v, %v", text, second.IsCacheHit(), err)
	}
	if err := set("2"); err != nil {
		return err
	}
	if err := until(func() bool { text, _ := get().ToString(); return text == "2" }, "invalidation"); err != nil {
		return err
	}
	for _, reply := range client.DoMultiCache(ctx,
		rueidis.CT(client.B().Hgetall().Key("none").Cache(), time.Minute),
		rueidis.CT(client.B().Get().Key("cached").Cache(), time.Minute)) {
		if err := reply.Error(); err != nil {
			return err
		}
	}
	return client.Dedicated(func(own rueidis.DedicatedClient) error {
		own.Do(ctx, own.B().Watch().Key("cached").Build())
		for _, reply := range own.DoMulti(ctx, own.B().Multi().Build(), own.B().Incr().Key("cached").Build(), own.B().Exec().Build()) {
			if err := reply.Error(); err != nil {
				return err
			}
		}
		return nil
	})
}

func version(path string) string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == path {
			return module.Version
		}
	}
	return "?"
}

func main() {
	address = "127.0.0.1:" + os.Args[1]
	programs := []struct {
		name, module string
		run          func(context.Context) error
	}{
		{"redsync", "github.com/go-redsync/redsync/v4", useRedsync},
		{"redis_rate", "github.com/go-redis/redis_rate/v10", useRedisRate},
		{"asynq", "github.com/hibiken/asynq", useAsynq},
		{"rueidis", "github.com/redis/rueidis", useRueidis},
	}
	failed := false
	for _, program := range programs {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		outcome := "ok"
		if err := program.run(ctx); err != nil {
			outcome, failed = "FAILED "+err.Error(), true
		}
		cancel()
		fmt.Printf("%s %s: %s\n", program.name, version(program.module), outcome)
	}
	if failed {
		os.Exit(1)
	}
}
