package crash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"

	redis "github.com/redis/go-redis/v9"

	"github.com/seed-62bf7108/unwind/activities"
	world "github.com/seed-62bf7108/unwind/activities/redis"
	"github.com/seed-62bf7108/unwind/activities/redis/redistest"
)

// inRedis is one step on keys of its own, in the one database that all tasks share.
type inRedis struct {
	// Flushes makes the step delete whole keys too, some of which have a time to expire.
	Flushes bool

	id     string
	prefix string // of the keys
}

func drawRedis(r *rand.Rand) *inRedis { return &inRedis{Flushes: r.IntN(3) == 0} }

// In these, $P stands for the prefix of the keys. A command that runs twice leaves something else
// than one that runs once.
const (
	redisKeys = `SET $P:visits 10
SET $P:session:1 a PXAT 4102444800000
SET $P:session:2 b PXAT 4102444900000
HSET $P:user name Ann age 31
RPUSH $P:queue a b c
SADD $P:tags x y 3
ZADD $P:rank 1 ann 2 bob
XADD $P:log 1-1 a b
XGROUP CREATE $P:log readers 0`
	redisChange = `INCRBY $P:visits 5
HINCRBY $P:user age 1
RPUSH $P:queue d
LPOP $P:queue
SADD $P:made one
ZINCRBY $P:rank 1.5 ann
PEXPIREAT $P:session:1 4102445000000
APPEND $P:session:2 b`
	// flushRedis comes after redisChange.
	flushRedis = `
DEL $P:session:1 $P:session:2 $P:log $P:tags
RENAME $P:user $P:person`
)

func (p *inRedis) commands() string {
	if p.Flushes {
		return redisChange + flushRedis
	}
	return redisChange
}

// underPrefix puts a prefix of keys into lines of commands, and returns the commands.
func underPrefix(prefix, lines string) (all [][]any) {
	for line := range strings.Lines(strings.ReplaceAll(lines, "$P", prefix)) {
		var args []any
		for arg := range strings.FieldsSeq(line) {
			args = append(args, arg)
		}
		all = append(all, args)
	}
	return all
}

// redisServer is the server of a run, which keeps all that it has answered.
type redisServer struct {
	*redistest.Server

	// before and after are dumps of the keys of a step; after is that of twins on which the commands
	// ran without us, by whether they flush.
	before string
	after  map[bool]string
}

func (r *run) setRedis(ctx context.Context) (err error) {
	p := &redisServer{after: map[bool]string{}}
	p.Server, err = redistest.Start("--appendonly", "yes", "--appendfsync", "always", "--databases", "512")
	if err != nil {
		return err
	}
	r.closers = append(r.closers, func() error { p.Stop(); return nil })
	r.redis = p
	const twin = "twin"
	for _, flushes := range []bool{false, true} {
		if err := p.fill(ctx, twin, redisKeys); err != nil {
			return err
		}
		if p.before, err = p.dump(ctx, twin); err != nil {
			return err
		}
		if err := p.fill(ctx, twin, redisKeys+"\n"+(&inRedis{Flushes: flushes}).commands()); err != nil {
			return err
		}
		if p.after[flushes], err = p.dump(ctx, twin); err != nil {
			return err
		}
	}
	socket := filepath.Join(r.dir, "redis.sock")
	if err := r.serveDatabase("redis", p, "unix", socket, func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", p.Socket())
	}); err != nil {
		return err
	}
	numbers := map[string]int{appDatabase: 0}
	for n := range r.Side {
		numbers[siteDatabase(n)] = siteKeys(n)
	}
	databases := map[string]world.DatabaseSettings{}
	for name, number := range numbers {
		url, secret := filepath.Join(r.dir, "redis-url-"+name), "CACHE_URL_"+strings.ToUpper(name)
		if err := os.WriteFile(url, fmt.Appendf(nil, "unix://%s?db=%d", socket, number), 0o600); err != nil {
			return err
		}
		databases[name] = world.DatabaseSettings{URL: activities.OwnSecret(secret)}
		for _, m := range r.fleet.members {
			m.setSecret(secret, url)
		}
	}
	for _, m := range r.fleet.members {
		m.Config = m.With(&world.Settings{Databases: databases})
	}
	return nil
}

// siteKeys is the number of the logical database of a site, above those that a rehearsal looks for.
func siteKeys(n int) int { return 16 + n }

// asked asks the server, for as long as it may be starting.
func (p *redisServer) asked(ctx context.Context, ask func(*redis.Client) error) error {
	return p.askedIn(ctx, 0, ask)
}

func (p *redisServer) askedIn(ctx context.Context, number int, ask func(*redis.Client) error) error {
	c := p.Client(number)
	defer c.Close()
	return insist(ctx, func() error { return ask(c) })
}

// fill makes the keys with a prefix anew by commands.
func (p *redisServer) fill(ctx context.Context, prefix, lines string) error {
	return p.asked(ctx, func(c *redis.Client) error {
		if err := deleteKeys(ctx, c, prefix); err != nil {
			return err
		}
		_, err := c.TxPipelined(ctx, func(tx redis.Pipeliner) error {
			for _, each := range underPrefix(prefix, lines) {
				tx.Do(ctx, each...)
			}
			return nil
		})
		return err
	})
}

func deleteKeys(ctx context.Context, c *redis.Client, prefix string) error {
	keys, err := c.Keys(ctx, prefix+":*").Result()
	if err != nil || len(keys) == 0 {
		return err
	}
	return c.Del(ctx, keys...).Err()
}

// dump is what the keys with a prefix hold, under a prefix that all have.
func (p *redisServer) dump(ctx context.Context, prefix string) (text string, err error) {
	err = p.asked(ctx, func(c *redis.Client) error {
		text, err = redistest.DumpKeys(ctx, c, prefix+":*")
		return err
	})
	return strings.ReplaceAll(text, prefix, "p"), err
}

// lingering are our connections, and copies of a rehearsal, that are left over when all workers
// have ended.
func (p *redisServer) lingering(ctx context.Context) (left []string, err error) {
	return untilNone(ctx, func() (left []string, err error) {
		err = p.asked(ctx, func(c *redis.Client) error {
			left = nil
			clients, err := c.ClientList(ctx).Result()
			if err != nil {
				return err
			}
			for line := range strings.Lines(clients) {
				if strings.Contains(line, " name=unwind") {
					left = append(left, "a connection of the Redis server is left over: "+strings.TrimSpace(line))
				}
			}
			keyspace, err := c.Info(ctx, "keyspace").Result()
			for line := range strings.Lines(keyspace) {
				var number int
				if n, _ := fmt.Sscanf(line, "db%d:", &number); n == 1 && number > 0 && number < siteKeys(0) {
					left = append(left, "copies of keys are left over in Redis: "+strings.TrimSpace(line))
				}
			}
			return err
		})
		return left, err
	})
}

func (p *inRedis) name(n int) { p.id = fmt.Sprintf("redis-%d", n) }

func (p *inRedis) actions() []string { return []string{"redis.exec"} }

func (p *inRedis) firstStep() string { return p.id }

func (p *inRedis) host() (int, bool) { return 0, false }

func (p *inRedis) setUp(ctx context.Context, r *run, task string) error {
	p.prefix = task + "-" + p.id
	return r.redis.fill(ctx, p.prefix, redisKeys)
}

func (p *inRedis) steps() []map[string]any {
	return []map[string]any{{"id": p.id, "uses": "redis.exec",
		"with": map[string]any{"database": appDatabase, "commands": underPrefix(p.prefix, p.commands())}}}
}

func (p *inRedis) judgePart(ctx context.Context, r *run, e taskEnd) (v verdict, err error) {
	now, err := r.redis.dump(ctx, p.prefix)
	if err != nil {
		return v, err
	}
	v.compareDumps(p.id, r.redis.before, r.redis.after[p.Flushes], now, e)
	for _, token := range e.tokens(p.id) {
		kept := e.committed() && token == e.token(p.id)
		state := ""
		if err := r.redis.asked(ctx, func(c *redis.Client) error {
			state, err = c.HGet(ctx, "unwind:journal", token+":state").Result()
			if errors.Is(err, redis.Nil) {
				err = nil // it has never begun
			}
			return err
		}); err != nil {
			return v, err
		}
		v.judgeRecord(p.id, token, state, kept)
	}
	return v, nil
}

func (p *inRedis) clear(ctx context.Context, r *run) error {
	return r.redis.asked(ctx, func(c *redis.Client) error { return deleteKeys(ctx, c, p.prefix) })
}

func (p *inRedis) String() string { return fmt.Sprintf("%s: flushes %v", p.id, p.Flushes) }
