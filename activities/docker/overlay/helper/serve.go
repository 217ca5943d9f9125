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
	"slices"
	"sync"
	"time"

	"github.com/seed-62bf7108/unwind/activities/docker/overlay/layer"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/stack"
)

// Op is the operation of a request.
type Op string

// The operations. Each is idempotent: repeated, it does what is left of it.
const (
	// Probe tells whether this host supports layers at all.
	Probe Op = "probe"
	// Fit tells whether a stack can be used on the container now. Yes says the same as of Kept.
	Fit Op = "fit"
	// Take makes checkpoint Name.
	Take Op = "take"
	// Enter returns the Path in the container through which the step of checkpoint Name gets to
	// Workdir.
	Enter Op = "enter"
	// Changes returns what differs from checkpoint Name, except below Skip: now, or in checkpoint Keep
	// if set. Over and Same of a change are set if the container is running.
	Changes Op = "changes"
	// Files returns all that the container shows, except below Skip and in mounts.
	Files Op = "files"
	// Beside returns in Changes what the container has in the engine's own mounts, which are in no
	// layer.
	Beside Op = "beside"
	// Recreate makes Nodes again that are gone or others, of those that Beside returns.
	Recreate Op = "recreate"
	// Read returns the file at Path, links followed.
	Read Op = "read"
	// Restore restores checkpoint Name: once for each Turn. With Keep, what it removes is kept as a
	// checkpoint of that name. With Door, the step of that checkpoint may enter what is restored,
	// unless a restore without a Door has ended it: then the restore is Fenced. With Parts, it then
	// looks as Together does, at what its book and the kernel have now.
	Restore Op = "restore"
	// Restored returns in Yes whether Turn of Name is done, and in Busy what Has returns.
	Restored Op = "restored"
	// Has returns in Yes whether there is a checkpoint Name, and in Busy whether processes of earlier
	// steps were running in the container when it was taken.
	Has Op = "has"
	// Named returns in IDs the checkpoints whose names begin with Name.
	Named Op = "named"
	// Weigh returns in Bytes the size of checkpoint Name, and of those whose names begin with Keep
	// beside it.
	Weigh Op = "weigh"
	// Drop removes checkpoints Names.
	Drop Op = "drop"
	// End ends the container's processes that have the variable Name in their environment. Yes says
	// that there were some.
	End Op = "end"
	// Commit makes the work of the steps of checkpoints Names part of the container's own filesystem,
	// also if it is not running or processes still use the layers. Checkpoints stay. Yes says that no
	// layers are mounted any more. Users are the processes that still use them. Paths are those that
	// somebody else has changed in the container's own filesystem: they were not written.
	Commit Op = "commit"
	// Stacked returns in Yes whether layers are, or should be, mounted over the container's own root.
	Stacked Op = "stacked"
	// Kept returns in Yes whether anything is kept of the container: layers, or checkpoints of them.
	// It takes no lock.
	Kept Op = "kept"
	// Together does Parts, which only look or end processes, one after the other with nothing of a
	// helper's between them, and returns their answers in Parts. It fails with the first of them that
	// does.
	Together Op = "together"
	// Forget removes all that is kept of a container that no longer exists.
	Forget Op = "forget"
	// List returns the IDs of the containers that have a book.
	List Op = "list"
)

// Request is a line that the helper reads.
type Request struct {
	ID int `json:"id"`
	Op Op  `json:"op"`
	// Container is its full ID, PID its first process on this host, 0 if it is not running.
	Container string `json:"container,omitempty"`
	PID       int    `json:"pid,omitempty"`
	// Born is what an earlier answer said of PID, which is then not asked of the engine again. If that
	// is no longer the process, the request fails as Stale and nothing is done.
	Born    string   `json:"born,omitempty"`
	Name    string   `json:"name,omitempty"`
	Names   []string `json:"names,omitempty"`
	Turn    string   `json:"turn,omitempty"`
	Keep    string   `json:"keep,omitempty"`
	Door    string   `json:"door,omitempty"`
	Workdir string   `json:"workdir,omitempty"`
	Path    string   `json:"path,omitempty"`
	Limit   int64    `json:"limit,omitempty"`
	Skip    []string `json:"skip,omitempty"`

	Nodes []layer.Change `json:"nodes,omitempty"`
	// Parts are about the same container and process, which they do not name.
	Parts []Request `json:"parts,omitempty"`
}

// Answer is a line that the helper writes.
type Answer struct {
	ID      int      `json:"id"`
	Failure *Failure `json:"failure,omitempty"`
	// Born identifies the process PID of the request.
	Born    string            `json:"born,omitempty"`
	Path    string            `json:"path,omitempty"`
	Yes     bool              `json:"yes,omitempty"`
	Busy    bool              `json:"busy,omitempty"`
	Changes []layer.Change    `json:"changes,omitempty"`
	Files   []stack.RootEntry `json:"files,omitempty"`
	File    stack.File        `json:"file,omitzero"`
	IDs     []string          `json:"ids,omitempty"`
	Bytes   int64             `json:"bytes,omitempty"`
	Users   []string          `json:"users,omitempty"`
	Paths   []string          `json:"paths,omitempty"`
	Parts   []Answer          `json:"parts,omitempty"`
}

// unaskedLimit is how long a helper without requests lives. A client ends an unused one long
// before, if it can: after a restart of the engine, nothing can talk to an older sidecar or close
// its input.
const unaskedLimit = 10 * time.Minute

// leaveGrace is how long a process in layers being unmounted is waited for: long enough for a
// command, not for a service.
const leaveGrace = 5 * time.Second

// Serve answers requests until its input ends or it is no longer used, and returns when the last
// has been answered. It keeps its data in dir.
func Serve(dir string, in io.Reader, out io.Writer) error {
	return serve(&stacks{dir: dir, patience: patience, alone: unaskedLimit, starting: startGrace, leaving: leaveGrace,
		least: Least, owns: stack.InCgroup}, in, out)
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
				_ = lines.Encode(a) // nobody may be reading any more: the book has it
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
	ctx, cancel := context.WithTimeout(ctx, s.patience+time.Minute)
	defer cancel()
	switch r.Op {
	case Probe:
		return a, stack.Probe(s.dir)
	case Kept:
		a.Yes, err = HasLayers(s.dir, r.Container)
		return a, err
	case Forget:
		return a, s.forgetContainer(ctx, r.Container)
	case List:
		a.IDs, err = s.listContainers()
		return a, err
	case Files, End:
		if !hasBook(filepath.Join(s.dir, r.Container)) {
			return s.answerUnlocked(ctx, r)
		}
	}
	a, err = s.execute(ctx, r, false)
	if stack.IsFull(err) && r.Op != Take && r.Op != Commit {
		stack.CloseFormerTops()
		a, err = s.execute(ctx, r, true)
	}
	if err != nil || r.Op != Restore || len(r.Parts) == 0 {
		return a, err
	}
	seen, err := s.execute(ctx, Request{Op: Together, Container: r.Container, PID: r.PID, Born: a.Born, Parts: r.Parts},
		false)
	a.Parts = seen.Parts
	return a, err
}

// execute does what is left of a request. Cramped says that an earlier try found the disk full.
func (s *stacks) execute(ctx context.Context, r Request, cramped bool) (a Answer, err error) {
	o, err := s.open(ctx, r.Container, process{r.PID, r.Born}, cramped)
	if err != nil {
		return a, err
	}
	defer o.close()
	a.Born = o.born
	if r.PID == 0 && r.Op != Drop { // also asked about running containers, whose state does not matter
		o.assumeMade()
	}
	if r.Op != Together {
		err = o.execute(ctx, r, &a)
		return a, err
	}
	for _, part := range r.Parts {
		var of Answer
		if !leavesBook(part.Op) {
			return a, newFailure(Failed, "operation %q does more than look", part.Op)
		}
		if err := o.execute(ctx, part, &of); err != nil {
			return a, err
		}
		a.Parts = append(a.Parts, of)
	}
	return a, nil
}

// leavesBook says that an operation changes nothing that the opened book shows to another one.
func leavesBook(op Op) bool { return slices.Contains([]Op{Changes, Beside, Restored, End}, op) }

// execute does what a request asks of an opened book, and adds to its answer.
func (o *lockedBook) execute(ctx context.Context, r Request, a *Answer) (err error) {
	switch r.Op {
	case Fit:
		a.Yes = o.hasLayers()
		_, err = o.checkFit(ctx)
	case Take:
		err = o.takeCheckpoint(ctx, r.Name)
	case Enter:
		a.Path, err = o.openDoor(r.Name, r.Workdir)
	case Changes:
		a.Changes, err = retryVanished(func() ([]layer.Change, error) { return o.listChanges(r.Name, r.Keep, r.Skip) })
	case Files:
		a.Files, err = retryVanished(func() ([]stack.RootEntry, error) { return o.listFiles(r.Skip) })
	case Beside:
		a.Changes, err = retryVanished(o.engineFiles)
	case Recreate:
		err = o.recreateNodes(r.Nodes)
	case Read:
		a.File, err = o.readFile(r.Path, r.Limit)
	case Restore:
		err = o.restoreCheckpoint(ctx, r)
	case Restored:
		a.Yes, a.Busy = o.Turns[r.Name+" "+r.Turn], o.Busy[r.Name]
	case Has:
		_, a.Yes = o.Marks[r.Name]
		a.Busy = o.Busy[r.Name]
	case Named:
		a.IDs = o.checkpointsNamed(r.Name)
	case Weigh:
		a.Bytes, err = o.checkpointSize(r.Name, r.Keep)
	case Drop:
		err = o.dropCheckpoints(r.Names)
	case End:
		a.Yes, err = o.endProcesses(ctx, r.Name)
	case Commit:
		err = o.commit(ctx, r.Names, a)
	case Stacked:
		a.Yes = o.Upper != 0
	default:
		err = newFailure(Failed, "unknown operation %q", r.Op)
	}
	return err
}
