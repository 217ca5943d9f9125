package helper

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/seed-62bf7108/unwind/activities/container/overlay/stack"
)

// Op is what a request asks for.
type Op string

// The operations. Each may be asked for again: it then does what is left of it.
const (
	// Probe says whether this host can do it at all.
	Probe Op = "probe"
	// Fit says whether a stack may stand on the container now.
	Fit Op = "fit"
	// Take makes checkpoint Name.
	Take Op = "take"
	// Enter returns the Path in the container by which the step of checkpoint Name gets to Workdir.
	Enter Op = "enter"
	// Changes returns what differs from checkpoint Name, but below Skip: now, or in checkpoint Keep where it is set. Whether
	// a change is Over something, or the Same as it, is said where the container runs.
	Changes Op = "changes"
	// Files returns all that the container shows, but below Skip, and without what is mounted there.
	Files Op = "files"
	// Beside returns in Changes what the container has in the engine's own mounts, which is on no layer.
	Beside Op = "beside"
	// Read returns the file at Path, with all links followed.
	Read Op = "read"
	// Restore brings back checkpoint Name: once for each Turn. With Keep, what it takes away is kept as a checkpoint of
	// that name. With Door, the step of that checkpoint may enter what is brought back, unless a restore without a Door has
	// ended it: then the restore is Fenced.
	Restore Op = "restore"
	// Restored says in Yes whether Turn of Name is done, and in Busy what Has says.
	Restored Op = "restored"
	// Has says in Yes whether there is a checkpoint Name, and in Busy whether processes of earlier steps stood in the
	// container when it was taken.
	Has Op = "has"
	// Named returns in IDs the checkpoints whose names begin with Name.
	Named Op = "named"
	// Weigh returns in Bytes what checkpoint Name takes, and those whose names begin with Keep beside it.
	Weigh Op = "weigh"
	// Drop lets go of checkpoints Names.
	Drop Op = "drop"
	// End ends the container's processes that have the variable Name in their environment. Yes says that there were some.
	End Op = "end"
	// Commit makes what the steps of checkpoints Names have done a part of the container's own filesystem, also where it
	// does not run or where processes are left in the layers. Checkpoints stay. Yes says that no layers stand any more.
	Commit Op = "commit"
	// Stacked says in Yes whether layers stand, or have to stand, over the container's own root.
	Stacked Op = "stacked"
	// Kept says in Yes whether anything is kept of the container: layers, or checkpoints of them. It waits for nobody.
	Kept Op = "kept"
	// Forget drops all that is kept of a container that is no more.
	Forget Op = "forget"
	// List returns the IDs of the containers that have a book.
	List Op = "list"
)

// Request is a line that the helper reads.
type Request struct {
	ID int `json:"id"`
	Op Op  `json:"op"`
	// Container is its whole id, PID its first process on this host, 0 where it does not run.
	Container string   `json:"container,omitempty"`
	PID       int      `json:"pid,omitempty"`
	Name      string   `json:"name,omitempty"`
	Names     []string `json:"names,omitempty"`
	Turn      string   `json:"turn,omitempty"`
	Keep      string   `json:"keep,omitempty"`
	Door      string   `json:"door,omitempty"`
	Workdir   string   `json:"workdir,omitempty"`
	Path      string   `json:"path,omitempty"`
	Limit     int64    `json:"limit,omitempty"`
	Skip      []string `json:"skip,omitempty"`
}

// Answer is a line that the helper writes.
type Answer struct {
	ID      int            `json:"id"`
	Failure *Failure       `json:"failure,omitempty"`
	Path    string         `json:"path,omitempty"`
	Yes     bool           `json:"yes,omitempty"`
	Busy    bool           `json:"busy,omitempty"`
	Changes []stack.Change `json:"changes,omitempty"`
	Files   []stack.Shown  `json:"files,omitempty"`
	File    stack.File     `json:"file,omitzero"`
	IDs     []string       `json:"ids,omitempty"`
	Bytes   int64          `json:"bytes,omitempty"`
}

// alone is after how long a helper ends that is asked nothing. A client ends one long before that, where it still can: when
// an engine is started anew, nobody can speak to a sidecar of before any more, nor end its input.
const alone = 10 * time.Minute

// leaving is how long somebody who is in layers that are taken off is waited for: a command is, a service is not.
const leaving = 5 * time.Second

// Serve answers requests until its input ends or nobody asks any more, and returns when the last has been answered. What
// is kept is in dir.
func Serve(dir string, in io.Reader, out io.Writer) error {
	return serve(&stacks{dir: dir, patience: patience, alone: alone, starting: starting, leaving: leaving, least: Least, owns: stack.InCgroup}, in, out)
}

func serve(s *stacks, in io.Reader, out io.Writer) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	var mu sync.Mutex
	lines := json.NewEncoder(out)
	requests, end := make(chan Request), make(chan error, 1)
	over := make(chan struct{})
	defer close(over)
	go func() {
		for d := json.NewDecoder(bufio.NewReader(in)); ; {
			var r Request
			if err := d.Decode(&r); err != nil {
				end <- err
				return
			}
			select {
			case requests <- r:
			case <-over:
				return
			}
		}
	}()
	for {
		select {
		case r := <-requests:
			wg.Go(func() {
				a, err := s.answer(context.Background(), r)
				a.ID, a.Failure = r.ID, asFailure(err)
				mu.Lock()
				defer mu.Unlock()
				_ = lines.Encode(a) // nobody may be there to read it any more: the book has it
			})
		case err := <-end:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		case <-time.After(s.alone):
			return nil
		}
	}
}

func asFailure(err error) *Failure {
	var f *Failure
	switch {
	case err == nil:
		return nil
	case errors.As(err, &f):
		return f
	case stack.IsUnfit(err):
		return &Failure{Unfit, err.Error()}
	case stack.IsFull(err):
		return &Failure{Full, fmt.Sprintf("a disk is full: %v; %s", err, wayOut)}
	}
	return &Failure{Failed, err.Error()}
}

func (s *stacks) answer(ctx context.Context, r Request) (a Answer, err error) {
	switch r.Op {
	case Probe:
		return a, stack.Probe(s.dir)
	case Kept:
		a.Yes, err = Stands(s.dir, r.Container)
		return a, err
	case Forget:
		return a, s.forget(ctx, r.Container)
	case List:
		a.IDs, err = s.containers()
		return a, err
	case Files:
		if !hasBook(filepath.Join(s.dir, r.Container)) {
			a.Files, err = s.filesOf(r)
			return a, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, s.patience+time.Minute)
	defer cancel()
	a, err = s.try(ctx, r, false)
	if stack.IsFull(err) && r.Op != Take && r.Op != Commit {
		stack.LetGo()
		return s.try(ctx, r, true)
	}
	return a, err
}

// try does what is left of a request. Cramped says that it has found the disk full.
func (s *stacks) try(ctx context.Context, r Request, cramped bool) (a Answer, err error) {
	o, err := s.open(ctx, r.Container, r.PID, cramped)
	if err != nil {
		return a, err
	}
	defer o.close()
	if r.PID == 0 && r.Op != Drop { // that is asked of running containers too, without a look at them
		o.stopped()
	}
	switch r.Op {
	case Fit:
		_, err = o.fit(ctx)
	case Take:
		err = o.take(ctx, r.Name)
	case Enter:
		a.Path, err = o.enter(r.Name, r.Workdir)
	case Changes:
		a.Changes, err = settled(func() ([]stack.Change, error) { return o.changes(r.Name, r.Keep, r.Skip) })
	case Files:
		a.Files, err = settled(func() ([]stack.Shown, error) { return o.files(r.Skip) })
	case Beside:
		a.Changes, err = settled(o.beside)
	case Read:
		a.File, err = o.read(r.Path, r.Limit)
	case Restore:
		err = o.restore(ctx, r)
	case Restored:
		a.Yes, a.Busy = o.Turns[r.Name+" "+r.Turn], o.Busy[r.Name]
	case Has:
		_, a.Yes = o.Marks[r.Name]
		a.Busy = o.Busy[r.Name]
	case Named:
		a.IDs = o.named(r.Name)
	case Weigh:
		a.Bytes, err = o.weigh(r.Name, r.Keep)
	case Drop:
		err = o.drop(r.Names)
	case End:
		a.Yes, err = o.end(ctx, r.Name)
	case Commit:
		a.Yes, err = o.commit(ctx, r.Names)
	case Stacked:
		a.Yes = o.Upper != 0
	default:
		err = failure(Failed, "unknown operation %q", r.Op)
	}
	return a, err
}
