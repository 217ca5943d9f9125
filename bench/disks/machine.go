package disks

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// machine is a QEMU that runs, without KVM and without a guest.
type machine struct {
	process *exec.Cmd
	// ours is the socket of the monitor that Unwind asks, and conn leads to another one.
	ours string
	conn net.Conn
	in   *bufio.Reader
}

func startMachine(ctx context.Context, dir, disk string) (*machine, error) {
	theirs := filepath.Join(dir, "write.qmp")
	m := &machine{ours: filepath.Join(dir, "qmp")}
	listen := func(at string) string { return "unix:" + at + ",server=on,wait=off" }
	m.process = exec.CommandContext(ctx, "qemu-system-x86_64",
		"-M", "q35,accel=tcg", "-nodefaults", "-display", "none", "-m", "64",
		"-blockdev", "driver=file,node-name=file,filename="+disk, "-blockdev", "driver=qcow2,node-name=root,file=file",
		"-device", "nvme,drive=root,serial=root,id=root-disk", "-qmp", listen(m.ours), "-qmp", listen(theirs))
	m.process.Stderr = os.Stderr
	if err := m.process.Start(); err != nil {
		return nil, err
	}
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for until := time.Now().Add(time.Minute); ; <-again.C {
		conn, err := net.Dial("unix", theirs)
		if err == nil {
			m.conn, m.in = conn, bufio.NewReader(conn)
			err = m.call(`{"execute":"qmp_capabilities"}`)
		}
		if err == nil {
			return m, nil
		}
		if m.conn != nil || time.Now().After(until) {
			m.stop()
			return nil, fmt.Errorf("the monitor does not answer: %w", err)
		}
	}
}

func (m *machine) stop() {
	_ = m.process.Process.Kill()
	_ = m.process.Wait()
	if m.conn != nil {
		_ = m.conn.Close()
	}
}

// call has the monitor do something, and waits until it has.
func (m *machine) call(request string) error {
	if _, err := fmt.Fprintln(m.conn, request); err != nil {
		return err
	}
	for {
		said, err := m.in.ReadString('\n')
		switch {
		case err != nil:
			return err
		case strings.Contains(said, `"return": {}`), strings.Contains(said, `"return": ""`):
			return nil
		case strings.Contains(said, `"error"`), strings.Contains(said, `"return"`): // what a command says is an error
			return errors.New(said)
		}
	}
}

// longestWrite writes 4 KiB at a time to the disk through the machine while something is done, and
// is how long the longest of these writes has taken.
func (m *machine) longestWrite(ctx context.Context, do func() error) (longest time.Duration, err error) {
	done := make(chan error, 1)
	go func() { done <- do() }()
	for n := 0; ; n++ {
		select {
		case err := <-done:
			return longest, err
		case <-ctx.Done():
			return longest, ctx.Err()
		default:
		}
		began := time.Now()
		if err := m.call(fmt.Sprintf(`{"execute":"human-monitor-command","arguments":{"command-line":`+
			`"qemu-io -d root-disk \"write -P 7 %dk 4k\""}}`, n%1000*4)); err != nil {
			return longest, errors.Join(err, <-done)
		}
		longest = max(longest, time.Since(began))
	}
}
