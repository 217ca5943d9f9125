package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"

	"github.com/seed-62bf7108/unwind/bench/faults"
)

// benches are the measurements by name. Each prints its table and returns its figures; missed says which targets were.
var benches = map[string]func(ctx context.Context) (figures any, missed []string, err error){
	"steps":  steps,
	"faults": faults.Run,
}

func main() {
	if child, err := faults.Child(); child {
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench faults: worker:", err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) != 2 || benches[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, `usage: go run ./bench NAME

steps    a task of no-op steps against a bare workflow of no-op activities
faults   the same faults thrown at the usual saga and at Unwind: who ends with what left over`)
		os.Exit(2)
	}
	if err := run(benches[os.Args[1]]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run prints the line of figures; a missed target is an error.
func run(bench func(context.Context) (any, []string, error)) error {
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
