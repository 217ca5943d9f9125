package crash

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"syscall"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/point"
	"github.com/seed-62bf7108/unwind/worker/host"
)

// orderVariable names the environment variable that makes this program a worker of the matrix: the
// path of its order. What the worker starts inherits it.
const orderVariable = "UNWIND_CRASH_ORDER"

// order is what a child process has to do.
type order struct {
	Address   string      `json:"address"`
	Namespace string      `json:"namespace"`
	Config    host.Config `json:"config"`
	// Worlds are those of Config.
	Worlds namedWorlds `json:"worlds"`
	// Sticky keeps workflows in memory between their tasks; without it each task replays from the
	// start.
	Sticky bool `json:"sticky"`
	// Armed is the folder of the points at which a process ends or stops itself, Fired that of those
	// where one did.
	Armed string `json:"armed"`
	Fired string `json:"fired"`
	// Opener opens the worlds in the place of the config's own; empty: nothing is replaced.
	Opener string `json:"opener,omitempty"`
}

// Opener opens worlds in the place of those of a config, and returns what is left of that.
type Opener func(host.Config) (host.Config, []activities.World, error)

// Serve makes this program able to be a worker of the matrix: call it first in main, and in
// TestMain. In such a worker, and in what supervises for it, it never returns. Openers are chosen
// by name; a program that measures has none.
func Serve(openers map[string]Opener) {
	path := os.Getenv(orderVariable)
	if path == "" {
		host.Hooks()
		return
	}
	o, err := readOrder(path)
	if err == nil {
		breakAt(o)
		host.Hooks() // a supervisor stays in here
		err = runOrder(o, openers[o.Opener])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "crash worker:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func readOrder(path string) (o order, err error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return o, err
	}
	err = json.Unmarshal(raw, &o)
	o.Config.Worlds = o.Worlds
	return o, err
}

// namedWorlds are settings of worlds, in JSON by their names.
type namedWorlds []activities.Settings

// MarshalJSON implements json.Marshaler.
func (w namedWorlds) MarshalJSON() ([]byte, error) {
	named := map[string]activities.Settings{}
	for _, s := range w {
		named[s.World()] = s
	}
	return json.Marshal(named)
}

// UnmarshalJSON implements json.Unmarshaler.
func (w *namedWorlds) UnmarshalJSON(raw []byte) error {
	var named map[string]json.RawMessage
	if err := json.Unmarshal(raw, &named); err != nil {
		return err
	}
	for _, k := range host.Kinds {
		if section, is := named[k.Name()]; is {
			s := reflect.New(reflect.TypeOf(k.Sample).Elem())
			if err := json.Unmarshal(section, s.Interface()); err != nil {
				return err
			}
			*w = append(*w, s.Interface().(activities.Settings))
		}
	}
	return nil
}

// runOrder runs a child process until it is asked to stop.
func runOrder(o order, open Opener) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if !o.Sticky {
		worker.SetStickyWorkflowCacheSize(0)
	}
	c, err := client.DialContext(ctx, client.Options{
		HostPort: o.Address, Namespace: o.Namespace, Identity: o.Config.Host,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return err
	}
	defer c.Close()
	config, options := o.Config, host.Options{Client: c, Namespace: o.Namespace}
	if open != nil {
		if config, options.Worlds, err = open(config); err != nil {
			return err
		}
	}
	w, err := host.Start(ctx, config, options)
	if err != nil {
		return err
	}
	defer w.Stop()
	select {
	case <-ctx.Done():
		return nil
	case err := <-w.Failed():
		return err
	}
}

// How a process breaks.
const (
	breakKill = "kill"
	breakStop = "stop"
)

// arm is a point at which one process breaks, the nth time that any process of the host comes
// there. Each coming removes one file of its name, and who removes the last one breaks: exactly one
// process does.
type arm struct {
	Label string
	Break string
	Task  string
}

func (a arm) name(nth int) string {
	return strings.Join([]string{a.Label, a.Break, a.Task, strconv.Itoa(nth)}, "@")
}

func armOf(name string) (a arm, nth int, ok bool) {
	parts := strings.Split(name, "@")
	if len(parts) != 4 {
		return a, 0, false
	}
	nth, err := strconv.Atoi(parts[3])
	return arm{parts[0], parts[1], parts[2]}, nth, err == nil
}

func (a arm) armChild(folder string, nth int) error {
	for n := range nth {
		if err := os.WriteFile(filepath.Join(folder, a.name(n+1)), nil, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// disarm removes what a task has armed and nothing came to.
func disarm(folder, task string) error {
	names, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, f := range names {
		if a, _, ok := armOf(f.Name()); ok && a.Task == task {
			if err := os.Remove(filepath.Join(folder, f.Name())); err != nil && !os.IsNotExist(err) {
				return err
			}
		}
	}
	return nil
}

// breakAt makes this process break at the points that are armed for it.
func breakAt(o order) {
	point.Hook(func(label string) {
		for _, a := range reached(o.Armed, label) {
			breaks(a, o.Fired)
		}
	})
}

// reached takes one coming away from each arm of a label, and returns those of which it was the
// last.
func reached(folder, label string) (due []arm) {
	names, err := os.ReadDir(folder)
	if err != nil {
		return nil
	}
	highest := map[arm]int{}
	for _, f := range names {
		if a, nth, ok := armOf(f.Name()); ok && a.Label == label {
			highest[a] = max(highest[a], nth)
		}
	}
	for a, nth := range highest {
		if os.Remove(filepath.Join(folder, a.name(nth))) == nil && nth == 1 {
			due = append(due, a)
		}
	}
	return due
}

// breaks leaves word of it, and kills or stops this process.
func breaks(a arm, fired string) {
	_ = os.WriteFile(filepath.Join(fired, a.name(os.Getpid())), nil, 0o600) // it goes uncounted
	if a.Break == breakKill {
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		select {}
	}
	// The signal may take a moment to stop this thread: it goes on when the process is woken.
	woken := make(chan os.Signal, 1)
	signal.Notify(woken, unix.SIGCONT)
	_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
	<-woken
}
