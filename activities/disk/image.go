package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/disk/qcow2"
	"github.com/seed-62bf7108/unwind/activities/isolated"
	"github.com/seed-62bf7108/unwind/internal/childenv"
)

// image is an image that is open.
type image struct {
	*qcow2.Image

	path string
	file *os.File
}

// openImage opens an image and reads its header. It locks nothing.
func openImage(path string) (*image, error) {
	file, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	i := &image{path: path, file: file}
	if err := i.reread(); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return i, nil
}

// readImage reads the header of an image that is only read.
func readImage(path string) (*qcow2.Image, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return qcow2.Read(file)
}

// reread reads the header again, and the list of snapshots.
func (i *image) reread() (err error) {
	i.Image, err = qcow2.Read(i.file)
	return explain(i.path, err)
}

func (i *image) close() { i.file.Close() }

// holdImage opens an image that nobody else can open until it is closed, or is errInUse.
func holdImage(path string) (*image, error) {
	i, err := openImage(path)
	if err != nil {
		return nil, err
	}
	locked, err := lockImage(i.file)
	if err == nil && !locked {
		err = errInUse
	}
	if err == nil {
		err = i.reread()
	}
	if err != nil {
		i.close()
		return nil, err
	}
	return i, nil
}

// Bounds on waiting for who has an image open: other calls have it for a moment.
const (
	busy  = 5 * time.Second
	pause = 50 * time.Millisecond
)

// awaitImage is holdImage that waits, unless has answers that there is no use in that.
func awaitImage(ctx context.Context, path string, hopeless func(context.Context) (bool, error)) (*image, error) {
	for giveUp := time.Now().Add(busy); ; {
		i, err := holdImage(path)
		if !errors.Is(err, errInUse) {
			return i, err
		}
		if no, err := hopeless(ctx); no || err != nil {
			return nil, errors.Join(errInUse, err)
		}
		if time.Now().After(giveUp) {
			return nil, errInUse
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// program is what works on images.
const program = "qemu-img"

// checkProgram refuses a worker without it.
func checkProgram() error {
	if _, err := exec.LookPath(program); err != nil {
		return activities.Errorf(activities.Refused,
			"disk: %s is not on the PATH of this worker; install it (Debian's package qemu-utils)", program)
	}
	return nil
}

// target is the image for qemu-img: the file that is held, whose locks the program inherits with it.
// What it does needs no image below.
const target = `json:{"driver":"qcow2","file":{"driver":"file","filename":"/proc/self/fd/3","locking":"off"},` +
	`"backing":null}`

// run runs qemu-img on an image that is held. An undo finds the program by its environment.
func (i *image) run(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, program, append(args, target)...)
	cmd.Dir, cmd.Env = "/", childenv.List(childenv.Minimal(isolated.Variable))
	cmd.ExtraFiles = []*os.File{i.file}
	if out, err := cmd.CombinedOutput(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("%s: %s %s: %w: %s", i.path, program, strings.Join(args, " "), err, lastLine(out))
	}
	return i.reread()
}

func lastLine(out []byte) string {
	text := strings.ReplaceAll(strings.TrimSpace(string(out)), target, "it")
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// keep takes a snapshot.
func (i *image) keep(ctx context.Context, name string) error {
	return i.run(ctx, "snapshot", "-c", name)
}

// drop drops a snapshot.
func (i *image) drop(ctx context.Context, name string) error {
	return i.run(ctx, "snapshot", "-d", name)
}

// putBack makes the disk hold what a snapshot has.
func (i *image) putBack(ctx context.Context, name string) error {
	return i.run(ctx, "snapshot", "-a", name)
}

// freeLeaks frees what a program that was killed has left: clusters that nobody refers to.
func (i *image) freeLeaks(ctx context.Context) error { return i.run(ctx, "check", "-q", "-r", "leaks") }

// What the statuses of a check say: that the image is damaged, and that it has nothing but clusters
// that nobody refers to.
const (
	statusDamaged = 2
	statusLeaky   = 3
)

// check is an error where QEMU finds the image to be damaged.
func (i *image) check(ctx context.Context) error {
	err := i.run(ctx, "check")
	exit, ran := errors.AsType[*exec.ExitError](err)
	switch {
	case ran && exit.ExitCode() == statusLeaky:
		return nil
	case ran && exit.ExitCode() == statusDamaged:
		return activities.Errorf(activities.Refused,
			"disk: %s is damaged (%v); see `%s check`, and restore it from a backup or repair it", i.path, err, program)
	}
	return err
}

// view is the disk as the snapshot with a name has it; found is false where there is none.
func (i *image) view(name string) (v qcow2.View, found bool, err error) {
	s, found := i.Find(name)
	if found {
		v, err = i.View(s)
	}
	return v, found, explain(i.path, err)
}

// explain gives the errors of an image their types.
func explain(path string, err error) error {
	if damaged, is := errors.AsType[*qcow2.DamageError](err); is {
		return activities.Errorf(activities.Refused, "disk: %s: %v; see `%s check`", path, damaged, program)
	}
	if errors.Is(err, qcow2.ErrFormat) {
		return activities.Errorf(activities.Refused,
			"disk: %s: %v, and only such have snapshots; convert it (%s convert -O qcow2 %s NEW)", path, err, program, path)
	}
	return err
}
