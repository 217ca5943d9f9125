package terraform

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
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/point"
	"github.com/seed-62bf7108/unwind/internal/filelock"
	"github.com/seed-62bf7108/unwind/internal/supervisor"
)

const (
	frontName = "unwind-terraform"
	// exitRefused is the exit status of a run that the fence has refused.
	exitRefused = 125
	// lockWait is how long a supervisor waits for an earlier run of its token to let go.
	lockWait = time.Minute
)

// supervisorJob is what the front hands the supervisor.
type supervisorJob struct {
	Order order    `json:"order"`
	Args  []string `json:"args"`
}

var supervisorRole = supervisor.Role[supervisorJob]{Name: frontName + "-supervisor"}

// Attend makes the program its own supervisor of terraform. Call it first thing in main, and in TestMain: it returns at
// once, except in the processes that the world starts from the program itself. These are two:
//
// The front is what terraform-exec takes for terraform. terraform-exec kills it when the worker dies, and interrupts it
// when a call is cancelled. It starts the supervisor and passes on what terraform says.
//
// The supervisor has a session of its own and outlives the worker. It writes down who it is, takes the token's lock,
// which terraform inherits, asks the journal whether the token is still open, and only then starts terraform, with its
// output in files. A byte from the front, the end of the front, or a signal makes it interrupt terraform: once in all,
// for a second interrupt would make terraform drop what is in flight.
func Attend() {
	supervisorRole.Attend(supervise)
	supervisor.Dispatch(frontName, serve)
}

func serve() error {
	o, err := orderFrom(os.Getenv(orderVar))
	if err != nil {
		return err
	}
	if o.Version != "" && len(os.Args) > 1 && os.Args[1] == "version" {
		return json.NewEncoder(os.Stdout).Encode(map[string]string{"terraform_version": o.Version})
	}
	if o.Out != "" {
		return front(o, os.Args[1:])
	}
	return syscall.Exec(o.Terraform, append([]string{o.Terraform}, os.Args[1:]...), ownEnv()) //nolint:gosec // our own arguments, handed on
}

// ownEnv is the environment without what only the front reads.
func ownEnv() []string {
	return slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, orderVar+"=") })
}

// front starts the supervisor and, when it has ended, passes on its output and exit status. The worker reads the report of a run
// from its files, so nobody waits for the output before.
func front(o order, args []string) error {
	interrupts := make(chan os.Signal, 4)
	signal.Notify(interrupts, syscall.SIGINT, syscall.SIGTERM)
	stdout, err := newOutput(stdoutOf(o.Out))
	if err != nil {
		return err
	}
	stderr, err := newOutput(stderrOf(o.Out))
	if err != nil {
		return err
	}
	o.reach("ready")
	p, err := supervisorRole.Start(supervisorJob{o, args}, supervisor.Setup{Env: ownEnv(), Stdout: stdout, Stderr: stderr})
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
				os.Exit(max(end.status, 1)) // -1: a signal has ended it
			}
			return end.err
		}
	}
}

// reach labels where the front of a run stands; looks have none.
func (o order) reach(what string) {
	if o.Run != 0 {
		point.Reach("terraform.front:" + what)
	}
}

func newOutput(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR|os.O_APPEND, 0o600)
}

// passOn copies a whole file. The worker may be gone; the file has it all.
func passOn(to io.Writer, from *os.File) {
	_, _ = io.Copy(to, io.NewSectionReader(from, 0, math.MaxInt64))
}

// supervise runs terraform for an order, if its fence still lets it.
func supervise(job supervisorJob, front io.Reader) error {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	ctx, cancel := context.WithCancelCause(context.Background())
	s := &supervision{order: job.Order, stop: cancel}
	go s.interruptOn(front, signals)
	if s.Run == 0 {
		code, err := s.start(ctx, job.Args)
		if err != nil {
			return err
		}
		os.Exit(code)
	}
	if err := s.register(); err != nil {
		return err
	}
	return s.end(s.terraform(ctx, job.Args))
}

// register writes down who supervises this run.
func (s *supervision) register() error {
	t, err := s.order.token()
	if err != nil {
		return err
	}
	s.token, s.run = t, run{t, s.Run}
	point.Reach("terraform.supervisor:begun")
	self, err := processOf(os.Getpid())
	if err != nil {
		return err
	}
	if first, err := t.Create(s.run.doc(docProcess), &supervisorRecord{self, s.Turn, s.What}); err != nil || !first {
		return fmt.Errorf("run %d of token %s has a supervisor already (%w)", s.Run, s.Token, err)
	}
	point.Reach("terraform.supervisor:registered")
	return nil
}

// supervision is one run, or one look: a terraform that changes nothing and has no number, no token and no lock.
type supervision struct {
	order
	token *journal.Token
	run   run
	// stop ends the context of all that comes before terraform is started.
	stop context.CancelCauseFunc

	mu    sync.Mutex
	child *os.Process
}

// interruptOn interrupts at the first byte or the end of what the front sends, or at the first signal.
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

// interrupt lets terraform finish what is in flight and end; one that has not started will not.
func (s *supervision) interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop(errInterrupted)
	send := func() { _ = s.child.Signal(syscall.SIGINT) } // it may have ended just now
	switch {
	case s.child == nil:
	case s.Run == 0:
		send()
	default:
		interruptOnce(s.run, send)
	}
}

// interruptOnce calls send if nobody has interrupted this run yet: the supervisor itself, or who comes after its death.
func interruptOnce(r run, send func()) {
	at := time.Now().UTC()
	if first, err := r.token.Create(r.doc(docInterrupted), &at); err == nil && first {
		send()
	}
}

// errInterrupted is why terraform was not started at all.
var errInterrupted = errors.New("interrupted before terraform was started")

// terraform takes the lock, asks the fence and runs the program; its error is why that did not come about.
func (s *supervision) terraform(ctx context.Context, args []string) (code int, err error) {
	lock, err := s.lock(ctx)
	if err != nil {
		return 0, err
	}
	defer lock.Release()
	point.Reach("terraform.supervisor:locked")
	if err := s.fenced(s.token); err != nil {
		return 0, err
	}
	point.Reach("terraform.supervisor:allowed")
	if len(args) > 0 && args[0] == sweepCommand {
		return 0, s.inside(ctx, func() error { return sweep(args[1:]) })
	}
	return s.start(ctx, args, lock.File())
}

// start runs terraform to its end. It and its providers inherit the lock and so hold it, should the supervisor be killed.
func (s *supervision) start(ctx context.Context, args []string, inherits ...*os.File) (code int, err error) {
	c := exec.Command(s.Terraform, args...)
	c.Env = ownEnv()
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	c.ExtraFiles = inherits
	if err := s.inside(ctx, func() error {
		if err := c.Start(); err != nil {
			return err
		}
		s.child = c.Process
		return nil
	}); err != nil {
		return 0, err
	}
	if s.Run != 0 {
		point.Reach("terraform.supervisor:started")
		if child, err := processOf(c.Process.Pid); err == nil {
			_, _ = s.token.Create(s.run.doc(docChild), &child) // without it, an undo waits for the lock alone
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

// inside does something unless the run has been interrupted, and lets no interrupt fall between the two.
func (s *supervision) inside(ctx context.Context, do func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return do()
}

// lock takes the token's terraform lock.
func (s *supervision) lock(ctx context.Context) (*filelock.Lock, error) {
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	l, err := filelock.Acquire(ctx, lockFile(s.token))
	if err != nil {
		return nil, fmt.Errorf("lock of token %s: %w", s.Token, err)
	}
	return l, nil
}

// end writes down how the run has ended, and ends the process likewise.
func (s *supervision) end(code int, err error) error {
	e := exit{Code: code}
	if err != nil {
		e = exit{Code: exitRefused, Refused: err.Error()}
		fmt.Fprintln(os.Stderr, err)
	}
	if _, err := s.token.Create(s.run.doc(docExit), &e); err != nil {
		return err
	}
	os.Exit(e.Code)
	return nil
}
