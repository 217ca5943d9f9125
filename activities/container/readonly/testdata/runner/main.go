// Command runner is the first process of the container that the corpus of commands is run in. It
// runs each command of /.commands (a JSON list) with sh, in /srv/app, looks whether anything in the
// filesystem is another than before, puts it back, and prints the paths that were changed as a JSON
// list, a line for each command.
package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	patience  = 3 * time.Second        // of a command
	afterward = 600 * time.Millisecond // of what it leaves running
)

func main() {
	signal.Ignore()
	raw, err := os.ReadFile("/.commands")
	check(err)
	var commands []string
	check(json.Unmarshal(raw, &commands))
	out := json.NewEncoder(os.Stdout)
	world := look(nil)
	for _, c := range commands {
		run(c)
		now := look(world)
		changed := differ(world, now)
		told := changed
		if _, err := os.Stat("/dev/null"); err != nil { // the one file there that every next command needs
			check(syscall.Mknod("/dev/null", syscall.S_IFCHR|0o666, 1<<8|3))
			told = append(told, "/dev/null")
		}
		check(out.Encode(told))
		if len(changed) > 0 {
			world = putBack(world, changed)
		}
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// node is all of a path that a command could change, and what it takes to put it back.
type node struct {
	mode         fs.FileMode
	uid, gid     uint32
	ino, nlink   uint64
	size         int64
	mtime, ctime syscall.Timespec
	rdev         uint64
	content      string
}

// look reads the filesystem; contents only where old does not have them already.
func look(old map[string]node) map[string]node {
	world := map[string]node{}
	check(filepath.WalkDir("/", func(at string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case slices.Contains([]string{"/proc", "/sys", "/dev"}, at):
			return fs.SkipDir
		case slices.Contains([]string{"/", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/etc/mtab"}, at):
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		s := info.Sys().(*syscall.Stat_t)
		n := node{info.Mode(), s.Uid, s.Gid, s.Ino, uint64(s.Nlink), s.Size, s.Mtim, s.Ctim, s.Rdev, ""}
		was, had := old[at]
		n.content = was.content
		if had && n == was {
			world[at] = n
			return nil
		}
		switch n.content = ""; {
		case info.Mode()&fs.ModeSymlink != 0:
			n.content, err = os.Readlink(at)
		case info.Mode().IsRegular():
			var raw []byte
			raw, err = os.ReadFile(at)
			n.content = string(raw)
		}
		world[at] = n
		return err
	}))
	return world
}

func differ(was, now map[string]node) []string {
	changed := []string{}
	for at, n := range now {
		if o, had := was[at]; !had || o != n {
			changed = append(changed, at)
		}
	}
	for at := range was {
		if _, has := now[at]; !has {
			changed = append(changed, at)
		}
	}
	slices.Sort(changed)
	return changed
}

// putBack makes the changed paths what they were, and returns the world as it is then.
func putBack(world map[string]node, changed []string) map[string]node {
	for _, at := range changed {
		n, had := world[at]
		if !had || !n.mode.IsDir() {
			check(os.RemoveAll(at))
		}
		switch {
		case !had:
			continue
		case n.mode.IsDir():
			if info, err := os.Lstat(at); err != nil || !info.IsDir() {
				check(os.RemoveAll(at))
				check(os.Mkdir(at, 0o700))
			}
		case n.mode&fs.ModeSymlink != 0:
			check(os.Symlink(n.content, at))
			check(os.Lchown(at, int(n.uid), int(n.gid)))
			continue
		case n.mode.IsRegular():
			check(os.WriteFile(at, []byte(n.content), 0o600))
		}
		check(os.Lchown(at, int(n.uid), int(n.gid)))
		check(os.Chmod(at, n.mode))
	}
	for _, at := range slices.Backward(changed) {
		if n, had := world[at]; had && n.mode&fs.ModeSymlink == 0 {
			check(syscall.UtimesNano(at, []syscall.Timespec{n.mtime, n.mtime}))
		}
	}
	return look(world)
}

// run runs a command to its end, with all that it leaves running.
func run(command string) {
	if strings.ContainsRune(command, 0) {
		return // no argument can hold it
	}
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	check(err)
	defer null.Close()
	pid, err := syscall.ForkExec("/bin/sh", []string{"sh", "-c", command}, &syscall.ProcAttr{
		Dir: "/srv/app", Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=/root"},
		Files: []uintptr{null.Fd(), null.Fd(), null.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	check(err)
	deadline := time.Now().Add(patience)
	for {
		ended, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		switch {
		case err == syscall.ECHILD: // no process is left: their orphans are ours
			return
		case ended == pid:
			if soon := time.Now().Add(afterward); soon.Before(deadline) {
				deadline = soon
			}
		case ended == 0 && time.Now().After(deadline):
			check(syscall.Kill(-1, syscall.SIGKILL))
			time.Sleep(time.Millisecond)
		case ended == 0:
			time.Sleep(500 * time.Microsecond)
		}
	}
}
