package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"

	"github.com/seed-62bf7108/unwind/activities/container"
	"github.com/seed-62bf7108/unwind/activities/mcpserver/mcptest"
	"github.com/seed-62bf7108/unwind/bench/containers"
	"github.com/seed-62bf7108/unwind/bench/crash"
	"github.com/seed-62bf7108/unwind/bench/databases"
	"github.com/seed-62bf7108/unwind/bench/disks"
	"github.com/seed-62bf7108/unwind/bench/environments"
	"github.com/seed-62bf7108/unwind/bench/faults"
	"github.com/seed-62bf7108/unwind/starter/command"
)

// benches are the measurements by name. Each prints its table and returns its figures; missed names
// the targets that were missed.
var benches = map[string]func(ctx context.Context) (figures any, missed []string, err error){
	"steps":        steps,
	"long":         long,
	"faults":       faults.Run,
	"containers":   func(ctx context.Context) (any, []string, error) { return containers.Command(ctx, os.Args[2:]) },
	"mcp":          agents,
	"wrap":         func(ctx context.Context) (any, []string, error) { return wrapped(ctx) },
	"databases":    databases.Run,
	"environments": environments.Run,
	"disks":        disks.Run,
	"decisions":    decisions,
	"page":         pages,
	"crash":        func(ctx context.Context) (any, []string, error) { return crash.Command(ctx, os.Args[2:]) },
}

// agents measures what an agent's session costs, and what a proxy adds to a call.
func agents(ctx context.Context) (any, []string, error) {
	proxy, missed, err := wrapped(ctx)
	if err != nil {
		return nil, nil, err
	}
	session, more, err := containers.AgentCommand(ctx)
	return map[string]any{"proxy": proxy, "session": session}, append(missed, more...), err
}

func main() {
	container.Attend()
	mcptest.Attend()
	crash.Serve(nil) // with all that a worker attends to
	if child, err := faults.Child(); child {
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench faults: worker:", err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) > 1 && os.Args[1] == serveCommand {
		os.Exit(command.Main(command.Options{}))
	}
	flags := map[string]bool{"containers": true, "crash": true, "page": true} // all others take none
	if len(os.Args) < 2 || benches[os.Args[1]] == nil || len(os.Args) > 2 && !flags[os.Args[1]] {
		fmt.Fprintln(os.Stderr, `usage: go run ./bench NAME

steps    a task of no-op steps against a bare workflow of no-op activities
long     10,000 steps that fail at the last, and are all undone; the same ended half way through the unwinding
faults   the same faults thrown at the usual saga and at Unwind: who ends with what left over
containers  checkpoints of a container and rollbacks: docker commit and a new container, against layers;
            whole steps through a task against docker exec, and against docker commit by hand; -quick without 1 GB,
            -steps for whole steps alone, -commands N for a task of N commands alone, -depth N for N checkpoints
            over one another alone
mcp      a session of commands through starter mcp against docker exec, and calls through starter mcp --wrap against
         calls of the same server
wrap     the second part of mcp alone
databases  what others pay for the triggers of Unwind in PostgreSQL, and what a step and its undo cost against a
           bare transaction
environments  a checkpoint of a container, a volume, a database and a repository, and a rollback, against the
              usual commands
disks    how long a checkpoint of a disk of 2 GB stops the machine that has it open
decisions  from an approval to the start of its step, unsigned and signed, against a bare workflow that waits for a
           signal
page     starter serve with 10,000 tasks that have ended (-tasks) and 1,000 at a gate (-gates), in a browser that reads
         and approves
crash    random tasks while processes are killed at random moments and at every point: see crash -h`)
		os.Exit(2)
	}
	if err := runBench(benches[os.Args[1]]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		if errors.Is(err, crash.ErrUsage) {
			os.Exit(2)
		}
		os.Exit(1)
	}
}

// runBench prints the line of figures; a missed target is an error.
func runBench(bench func(context.Context) (any, []string, error)) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	figures, missed, err := bench(ctx)
	if err != nil {
		return err
	}
	line, err := json.Marshal(figures)
	if err != nil {
		return err
	}
	fmt.Println(string(line))
	if len(missed) > 0 {
		return errors.New("missed: " + strings.Join(missed, "; "))
	}
	return nil
}
