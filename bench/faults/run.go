package faults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"go.temporal.io/sdk/client"

	"github.com/seed-62bf7108/unwind/deploy/devserver"
	"github.com/seed-62bf7108/unwind/worker/host"
)

// Figures are what was counted.
type Figures struct {
	Faults []row `json:"faults"`
	// UsualLeft and UnwindLeft count the faults after which something was left over.
	UsualLeft  int `json:"usual_left"`
	UnwindLeft int `json:"unwind_left"`
	// Unnamed counts the faults after which Unwind left something over that its report does not name.
	Unnamed int `json:"unnamed"`
}

type row struct {
	Fault  string  `json:"fault"`
	Usual  outcome `json:"usual"`
	Unwind outcome `json:"unwind"`
	title  string
}

// outcome is how one side has ended.
type outcome struct {
	Ended string `json:"ended"`
	// Acted is how many additions the world has seen: where it is zero, nothing was there to be left
	// over.
	Acted int `json:"acted"`
	// Left is what is left over in the world: the step, and by how much its counter is off.
	Left []string `json:"left"`
	// Unnamed are those of them that no report names.
	Unnamed []string `json:"unnamed"`
}

// Run measures on a server of its own and prints the table. missed says where Unwind has left
// something over that its report does not name.
func Run(ctx context.Context) (figures any, missed []string, err error) {
	server, err := devserver.Start(ctx, devserver.Options{Log: os.Stderr})
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	f, err := measure(ctx, server.ClientOptions(), faults)
	if err != nil {
		return nil, nil, err
	}
	f.print()
	for _, r := range f.Faults {
		if len(r.Unwind.Unnamed) > 0 {
			missed = append(missed, fmt.Sprintf("%s: %s left over and not named", r.Fault, strings.Join(r.Unwind.Unnamed, ", ")))
		}
	}
	return f, missed, nil
}

// stage is what all trials share.
type stage struct {
	client   client.Client
	counters *counters
	post     workerSetup
	worker   *host.Worker
}

// measure throws each of the faults at both sides, all at once, and counts when nothing runs any
// more.
func measure(ctx context.Context, server client.Options, thrown []fault) (_ Figures, err error) {
	dir, err := os.MkdirTemp("", "unwind-faults-*")
	if err != nil {
		return Figures{}, err
	}
	defer os.RemoveAll(dir)
	s := &stage{counters: newCounters()}
	defer s.counters.close()
	s.post = workerSetup{
		Address: server.HostPort, Namespace: server.Namespace, Queue: "faults",
		State: filepath.Join(dir, "state"), Service: service(s.counters.server.URL),
	}
	if s.client, err = s.post.dial(); err != nil {
		return Figures{}, err
	}
	defer s.client.Close()
	if s.worker, err = s.post.serve(ctx, s.client); err != nil {
		return Figures{}, err
	}
	trials := s.playTrials(ctx, thrown)
	s.worker.Stop()
	return count(trials)
}

// pair is a fault's trials.
type pair struct{ usual, unwind *trial }

func (s *stage) playTrials(ctx context.Context, thrown []fault) []pair {
	pairs := make([]pair, len(thrown))
	var group sync.WaitGroup
	for i, f := range thrown {
		pairs[i] = pair{&trial{stage: s, fault: f, side: usualSide}, &trial{stage: s, fault: f, side: unwindSide}}
		for _, t := range []*trial{pairs[i].usual, pairs[i].unwind} {
			group.Go(func() { t.err = t.playTrial(ctx) })
		}
	}
	group.Wait()
	return pairs
}

func count(pairs []pair) (f Figures, err error) {
	for _, p := range pairs {
		err = errors.Join(err, p.usual.err, p.unwind.err)
		r := row{Fault: p.usual.fault.name, title: p.usual.fault.title, Usual: p.usual.result(), Unwind: p.unwind.result()}
		f.UsualLeft += min(len(r.Usual.Left), 1)
		f.UnwindLeft += min(len(r.Unwind.Left), 1)
		f.Unnamed += min(len(r.Unwind.Unnamed), 1)
		f.Faults = append(f.Faults, r)
	}
	return f, err
}

func (f Figures) print() {
	const line = "%-66s %-7s %-44s %5v  %s\n"
	fmt.Printf("\n"+line, "fault", "", "ended", "acted", "left over")
	for _, r := range f.Faults {
		fmt.Printf(line, r.title, "usual", r.Usual.Ended, r.Usual.Acted, r.Usual.leftText())
		fmt.Printf(line, "", "Unwind", r.Unwind.Ended, r.Unwind.Acted, r.Unwind.leftText())
	}
	fmt.Printf("\nsomething is left over after %d of %d faults the usual way, after %d with Unwind\n\n", f.UsualLeft,
		len(f.Faults), f.UnwindLeft)
}

func (o outcome) leftText() string { return cmp.Or(strings.Join(o.Left, ", "), "nothing") }
