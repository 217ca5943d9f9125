package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/internal/filelock"
	"github.com/seed-62bf7108/unwind/internal/supervisor"
)

var supervisors = supervisor.Pool[job]{Name: "unwind-exec-supervisor"}

// Attend makes this program able to supervise commands in containers: in a process that was started
// as a supervisor it does that work and never returns.
func Attend() {
	supervisors.Attend(supervise)
}

// job is one run of a command. It may hold secrets.
type job struct {
	Journal string  `json:"journal"`
	Token   string  `json:"token"`
	Attempt int     `json:"attempt"`
	Host    string  `json:"host,omitempty"`
	Target  string  `json:"target"`
	Command Command `json:"command"`
	// Hide are the secrets to mask in what it says.
	Hide []string `json:"hide,omitempty"`
}

// beginning is the document that says: from now on the command may be running.
type beginning struct {
	Exec      string    `json:"exec"`
	Container string    `json:"container"`
	PID       int       `json:"pid"`
	At        time.Time `json:"at"`
}

// Ending is the document that says how a command ended.
type Ending struct {
	// Refused is the engine's reason why the command never ran.
	Refused string `json:"refused,omitempty"`
	Exit    int    `json:"exit"`
	Stdout  []byte `json:"stdout,omitempty"`
	Stderr  []byte `json:"stderr,omitempty"`
	// More says that Stdout or Stderr is only the beginning.
	More bool `json:"more,omitempty"`
}

func beginningDoc(attempt int) string { return fmt.Sprintf("begun-%d", attempt) }
func endingDoc(attempt int) string    { return fmt.Sprintf("ended-%d", attempt) }
func aliveName(attempt int) string    { return fmt.Sprintf("alive-%d", attempt) }

// LogName is the file in the folder of a token that has the output of an attempt.
func LogName(attempt int) string { return fmt.Sprintf("log-%d", attempt) }

// What a supervisor has opened for the jobs that it has done.
var (
	engines  = map[string]engine.Client{}
	journals = map[string]*journal.Journal{}
)

// openOnce opens what is not open yet.
func openOnce[T any](opened map[string]T, name string, open func(string) (T, error)) (T, error) {
	if found, ok := opened[name]; ok {
		return found, nil
	}
	found, err := open(name)
	if err == nil {
		opened[name] = found
	}
	return found, err
}

// supervise runs one command to its end. It returns without the document of its ending where it
// cannot tell how it ended.
func supervise(j job) error {
	signal.Ignore(syscall.SIGINT)
	ctx := context.Background()
	e, err := openOnce(engines, j.Host, engine.Connect)
	if err != nil {
		return err
	}
	records, err := openOnce(journals, j.Journal, journal.Open)
	if err != nil {
		return err
	}
	t, err := records.Token(j.Token)
	if err != nil {
		return err
	}
	id, err := create(ctx, e, j.Target, j.Command)
	if err == nil {
		err = follow(ctx, e, t, j, id)
	}
	if errors.Is(err, ErrNotRun) {
		_, err = t.Create(endingDoc(j.Attempt), &Ending{Refused: err.Error()})
	}
	return err
}

// follow starts an exec and writes down what it says and how it ends.
func follow(ctx context.Context, e engine.Client, t *journal.Token, j job, id string) error {
	f, err := os.OpenFile(filepath.Join(t.Dir(), LogName(j.Attempt)), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := t.CheckOpen(); err != nil {
		return err
	}
	first, err := t.Create(beginningDoc(j.Attempt),
		&beginning{Exec: id, Container: j.Target, PID: os.Getpid(), At: time.Now().UTC()})
	if err != nil || !first {
		return errors.Join(err, errors.New("this attempt has begun already"))
	}
	log, stdout, stderr, secrets := NewLog(f), &FirstBytes{}, &FirstBytes{}, activities.Hiding(j.Hide)
	out, errs := secrets.Writer(io.MultiWriter(log, stdout)), secrets.Writer(io.MultiWriter(log, stderr))
	exit, err := start(ctx, e, id, out, errs)
	if err != nil {
		return err
	}
	if err := errors.Join(out.Close(), errs.Close(), log.Finish(), f.Sync()); err != nil {
		return err
	}
	_, err = t.Create(endingDoc(j.Attempt),
		&Ending{Exit: exit, Stdout: stdout.Bytes, Stderr: stderr.Bytes, More: stdout.More || stderr.More})
	return err
}

// startSupervisor hands a run to a supervisor that holds lock until the run has ended. It returns
// when it has handed over the job; over is closed when the run has ended, or its supervisor.
func startSupervisor(j job, lock *filelock.Lock) (over <-chan struct{}, err error) {
	if !supervisors.Attended() {
		return nil, activities.Errorf(activities.Refused,
			"this program cannot run commands in containers: its main function must call container.Attend first")
	}
	return supervisors.Do(j, lock, supervisor.Setup{Env: supervisorEnv(), Dir: "/"}) // the journal says how it ends
}

// supervisorEnv is what a client of the engine needs to find it, and nothing else of the worker's.
func supervisorEnv() []string {
	var env []string
	for _, v := range os.Environ() {
		if strings.HasPrefix(v, "DOCKER_") || strings.HasPrefix(v, "HOME=") || strings.HasPrefix(v, "PATH=") {
			env = append(env, v)
		}
	}
	return env
}
