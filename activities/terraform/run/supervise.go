package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/point"
	"github.com/seed-62bf7108/unwind/internal/filelock"
	"github.com/seed-62bf7108/unwind/internal/process"
	"github.com/seed-62bf7108/unwind/internal/supervisor"
)

const (
	FrontName = "unwind-terraform"
	// exitRefused is the exit status of a run that the fence refused.
	exitRefused = 125
	// lockWait is how long a supervisor waits for an earlier run of its token to release the lock.
	lockWait = time.Minute
)

// supervisorJob is passed by the front to the supervisor.
type supervisorJob struct {
	Order Order    `json:"order"`
	Args  []string `json:"args"`
}

var SupervisorRole = supervisor.Role[supervisorJob]{Name: FrontName + "-supervisor"}

// Attend makes the program its own supervisor of terraform. Call it first in main and in TestMain:
// it returns at once, except in the processes that the world starts from the program itself. These
// are two:
//
// The front is what terraform-exec takes for terraform. terraform-exec kills it when the worker
// dies, and interrupts it when a call is cancelled. It starts the supervisor and passes on the
// output of terraform.
//
// The supervisor has a session of its own and outlives the worker. It records its identity, takes
// the token's lock, which terraform inherits, checks in the journal that the token is still open,
// and only then starts terraform, with its output in files. A byte from the front, the end of the
// front, or a signal makes it interrupt terraform: only once, because a second interrupt would make
// terraform abandon what is in flight.
func Attend() {
	SupervisorRole.Attend(superviseOrder)
	supervisor.Dispatch(FrontName, serveOrder)
}

func serveOrder() error {
	o, err := parseOrder(os.Getenv(OrderVar))
	if err != nil {
		return err
	}
	if o.Version != "" && len(os.Args) > 1 && os.Args[1] == "version" {
		return json.NewEncoder(os.Stdout).Encode(map[string]string{"terraform_version": o.Version})
	}
	if o.Out != "" {
		return runFront(o, os.Args[1:])
	}
	return o.Limits.Exec(o.Terraform, append([]string{o.Terraform}, os.Args[1:]...), o.childEnv())
}

// runFront starts the supervisor and, when it has ended, passes on its output and exit status. The
// worker reads the report of a run from its files, so nobody waits for the output before.
func runFront(o Order, args []string) error {
	interrupts := make(chan os.Signal, 4)
	signal.Notify(interrupts, syscall.SIGINT, syscall.SIGTERM)
	stdout, err := newOutput(Stdout(o.Out))
	if err != nil {
		return err
	}
	stderr, err := newOutput(Stderr(o.Out))
	if err != nil {
		return err
	}
	o.reach("ready")
	p, err := SupervisorRole.Start(supervisorJob{o, args},
		supervisor.Setup{Env: o.childEnv(), Stdout: stdout, Stderr: stderr})
	if err != nil {
		return err
	}
	o.reach("passed-on")
	type end struct {
		status int
		err    error
	}
	ended := make(chan end, 1)
	go func() {
		status, err := p.Wait()
		ended <- end{status, err}
	}()
	for {
		select {
		case <-interrupts:
			p.Interrupt()
		case end := <-ended:
			passOn(os.Stdout, stdout)
			passOn(os.Stderr, stderr)
			if end.status != 0 {
				os.Exit(max(end.status, 1)) // -1: a signal ended it
			}
			return end.err
		}
	}
}

// reach marks a point in the front of a run; observations have none.
func (o Order) reach(what string) {
	if o.Run != 0 {
		point.Reach("terraform.front:" + what)
	}
}

func newOutput(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR|os.O_APPEND, 0o600)
}

// passOn copies a whole file. The worker may be gone; the file has everything.
func passOn(to io.Writer, from *os.File) {
	_, _ = io.Copy(to, io.NewSectionReader(from, 0, math.MaxInt64))
}

// superviseOrder runs terraform for an order, unless it is fenced.
func superviseOrder(job supervisorJob, front io.Reader) error {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	ctx, cancel := context.WithCancelCause(context.Background())
	s := &supervision{Order: job.Order, stop: cancel}
	go s.interruptOn(front, signals)
	if s.Run == 0 {
		code, err := s.startTerraform(ctx, job.Args)
		if err != nil {
			return err
		}
		os.Exit(code)
	}
	if err := s.register(); err != nil {
		return err
	}
	return s.endRun(s.runTerraform(ctx, job.Args))
}

// register records who supervises this run.
func (s *supervision) register() error {
	t, err := s.Order.token()
	if err != nil {
		return err
	}
	s.token, s.run = t, Run{t, s.Run}
	point.Reach("terraform.supervisor:begun")
	self, err := process.Identify(os.Getpid())
	if err != nil {
		return err
	}
	if first, err := t.Create(s.run.Doc(DocProcess), &Supervisor{self, s.Turn, s.What}); err != nil || !first {
		return fmt.Errorf("run %d of token %s has a supervisor already (%w)", s.Run, s.Token, err)
	}
	point.Reach("terraform.supervisor:registered")
	return nil
}

// supervision is one run, or one observation: a terraform that changes nothing and has no number,
// token or lock.
type supervision struct {
	Order
	token *journal.Token
	run   Run
	// stop cancels everything before the start of terraform.
	stop context.CancelCauseFunc

	mu    sync.Mutex
	child *os.Process
}

// interruptOn interrupts at the first byte or the end of the front's input, or at the first signal.
func (s *supervision) interruptOn(front io.Reader, signals <-chan os.Signal) {
	spoken := make(chan struct{})
	go func() {
		_, _ = front.Read(make([]byte, 1)) // an error is the end as well
		close(spoken)
	}()
	select {
	case <-spoken:
	case <-signals:
	}
	s.interrupt()
}

// interrupt lets terraform finish what is in flight and end; if it has not started, it will not.
func (s *supervision) interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop(errInterrupted)
	send := func() { _ = s.child.Signal(syscall.SIGINT) } // it may have just ended
	switch {
	case s.child == nil:
	case s.Run == 0:
		send()
	default:
		interruptOnce(s.run, send)
	}
}

// interruptOnce calls send unless this run was interrupted before, by the supervisor itself or
// after its death.
func interruptOnce(r Run, send func()) {
	at := time.Now().UTC()
	if first, err := r.Token.Create(r.Doc(DocInterrupted), &at); err == nil && first {
		send()
	}
}

// errInterrupted is why terraform was not started.
var errInterrupted = errors.New("interrupted before terraform was started")

// runTerraform takes the lock, checks the fence and runs the program; its error says why that
// failed.
func (s *supervision) runTerraform(ctx context.Context, args []string) (code int, err error) {
	lock, err := s.lockToken(ctx)
	if err != nil {
		return 0, err
	}
	defer lock.Release()
	point.Reach("terraform.supervisor:locked")
	if err := CheckFence(s.token, s.Turn); err != nil {
		return 0, err
	}
	point.Reach("terraform.supervisor:allowed")
	if len(args) > 0 && args[0] == SweepCommand {
		return 0, s.withoutInterrupt(ctx, func() error { return sweepState(args[1:]) })
	}
	return s.startTerraform(ctx, args, lock.File())
}

// startTerraform runs terraform to its end. Terraform and its providers inherit the lock, and hold
// it if the supervisor is killed.
func (s *supervision) startTerraform(ctx context.Context, args []string, inherits ...*os.File) (code int, err error) {
	c := exec.Command(s.Terraform, args...)
	c.Env = s.childEnv()
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	c.ExtraFiles = inherits
	if err := s.withoutInterrupt(ctx, func() error {
		if err := s.Limits.Start(c); err != nil {
			return err
		}
		s.child = c.Process
		return nil
	}); err != nil {
		return 0, err
	}
	if s.Run != 0 {
		point.Reach("terraform.supervisor:started")
		if child, err := process.Identify(c.Process.Pid); err == nil {
			_, _ = s.token.Create(s.run.Doc(docChild), &child) // without it, an undo waits only for the lock
		}
	}
	var bad *exec.ExitError
	if err := c.Wait(); err != nil && !errors.As(err, &bad) {
		return 0, err
	}
	if s.Run != 0 {
		point.Reach("terraform.supervisor:ended")
	}
	return c.ProcessState.ExitCode(), nil
}

// withoutInterrupt calls do unless the run was interrupted, and holds off interrupts meanwhile.
func (s *supervision) withoutInterrupt(ctx context.Context, do func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return do()
}

// lockToken takes the token's terraform lock.
func (s *supervision) lockToken(ctx context.Context) (*filelock.Lock, error) {
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	l, err := filelock.Acquire(ctx, lockFile(s.token))
	if err != nil {
		return nil, fmt.Errorf("lock of token %s: %w", s.Token, err)
	}
	return l, nil
}

// endRun records how the run has ended, and exits accordingly.
func (s *supervision) endRun(code int, err error) error {
	e := Exit{Code: code}
	if err != nil {
		e = Exit{Code: exitRefused, Refused: err.Error()}
		fmt.Fprintln(os.Stderr, err)
	}
	if _, err := s.token.Create(s.run.Doc(DocExit), &e); err != nil {
		return err
	}
	os.Exit(e.Code)
	return nil
}
