// Package databases measures what Unwind costs in a PostgreSQL database: writers that are not ours,
// and steps.
package databases

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities/postgres/postgrestest"
)

// The targets: ratios, and the memory that a worker may take for a step of a million rows.
const (
	singleTarget = 1.02
	bulkTarget   = 1.10
	stepTarget   = 3
	undoTarget   = 1.5
	memoryTarget = 64 // MiB
)

const (
	tableRows = 100_000
	bulkRows  = 10_000
	million   = 1_000_000
	singles   = 300 // statements of a round
	rounds    = 9
)

// compared are medians of alternating rounds in milliseconds.
type compared struct {
	What   string  `json:"what"`
	Bare   float64 `json:"bare_ms"`
	Ours   float64 `json:"ours_ms"`
	Ratio  float64 `json:"ratio"` // the median of the rounds' own ratios
	Target float64 `json:"target"`
	// More is how much longer than the target's part of the bare statement a step may take, in
	// milliseconds.
	More float64 `json:"more_ms,omitempty"`
}

// figures are all that was measured.
type figures struct {
	Compared []compared `json:"compared"`
	// A step of a million rows, and its undo.
	MillionStep   float64 `json:"million_step_ms"`
	MillionUndo   float64 `json:"million_undo_ms"`
	MillionMemory float64 `json:"million_worker_mib"`
}

// Run measures on a server of its own, with its files on the disk.
func Run(ctx context.Context) (result any, missed []string, err error) {
	server, err := postgrestest.Start("-c", "autovacuum=off", "-c", "max_wal_size=8GB", "-c", "checkpoint_timeout=1h")
	if err != nil {
		return nil, nil, err
	}
	defer server.Stop()
	m, err := newMeter(ctx, server)
	if err != nil {
		return nil, nil, err
	}
	defer m.close()
	var f figures
	for _, measure := range []func(context.Context) ([]compared, error){m.others, m.steps, m.small} {
		found, err := measure(ctx)
		if err != nil {
			return nil, nil, err
		}
		f.Compared = append(f.Compared, found...)
	}
	if err := m.million(ctx, &f); err != nil {
		return nil, nil, err
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "what\tbare\tours\tratio\ttarget")
	for _, c := range f.Compared {
		target := fmt.Sprintf("%.2f", c.Target)
		if c.More > 0 {
			target += fmt.Sprintf(" and %.0f ms", c.More)
		}
		fmt.Fprintf(w, "%s\t%.1f ms\t%.1f ms\t%.2f\t%s\n", c.What, c.Bare, c.Ours, c.Ratio, target)
		if c.More > 0 && c.Ours > c.Target*c.Bare+c.More {
			missed = append(missed, fmt.Sprintf("%s: %.1f ms, bare %.1f ms, target %s", c.What, c.Ours, c.Bare, target))
		}
		if c.More == 0 && c.Ratio > c.Target {
			missed = append(missed, fmt.Sprintf("%s: %.2f times, target %.2f", c.What, c.Ratio, c.Target))
		}
	}
	fmt.Fprintf(w,
		"a step of a million rows\t\t%.0f ms\t\t\nits undo\t\t%.0f ms\t\t\nmemory of the worker\t\t%.0f MiB\t\t%d MiB\n",
		f.MillionStep, f.MillionUndo, f.MillionMemory, memoryTarget)
	if f.MillionMemory > memoryTarget {
		missed = append(missed,
			fmt.Sprintf("a million rows take %.0f MiB of the worker, target %d", f.MillionMemory, memoryTarget))
	}
	return f, missed, w.Flush()
}

// pairs measures two ways in turns; who is first changes each time.
func pairs(what string, target float64, bare, ours func() (time.Duration, error)) (compared, error) {
	var b, o, ratios []float64
	for i := range rounds + 1 {
		var took [2]time.Duration
		order := []int{0, 1}
		if i%2 > 0 {
			slices.Reverse(order)
		}
		for _, way := range order {
			var err error
			if took[way], err = []func() (time.Duration, error){bare, ours}[way](); err != nil {
				return compared{}, fmt.Errorf("%s: %w", what, err)
			}
		}
		if i == 0 {
			continue // the caches are cold
		}
		b, o, ratios = append(b, ms(took[0])), append(o, ms(took[1])), append(ratios, ms(took[1])/ms(took[0]))
	}
	return compared{What: what, Bare: median(b), Ours: median(o), Ratio: median(ratios), Target: target}, nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

// peak is the most heap that is in use while do runs, beyond what was before.
func peak(do func() error) (mib float64, err error) {
	use := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse
	}
	runtime.GC()
	before := use()
	var most atomic.Uint64
	over, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			most.Store(max(most.Load(), use()))
			select {
			case <-over:
				return
			case <-tick.C:
			}
		}
	}()
	err = do()
	close(over)
	<-stopped
	return float64(most.Load()-min(most.Load(), before)) / (1 << 20), err
}

// timed is how long do takes.
func timed(do func() error) (time.Duration, error) {
	began := time.Now()
	err := do()
	return time.Since(began), err
}

// fill makes a table with rows as wide as a small account.
func fill(ctx context.Context, c *pgx.Conn, table string, rows int) error {
	var problems []error
	for _, sql := range []string{
		fmt.Sprintf(
			"CREATE TABLE %s (id int PRIMARY KEY, owner text NOT NULL, balance numeric NOT NULL, at timestamptz NOT NULL "+
				"DEFAULT now())", table),
		fmt.Sprintf("INSERT INTO %s SELECT g, 'owner ' || g, g FROM generate_series(1, %d) g", table, rows),
		"VACUUM ANALYZE " + table,
	} {
		_, err := c.Exec(ctx, sql)
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}
