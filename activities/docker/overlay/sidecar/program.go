package sidecar

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/seed-62bf7108/unwind/activities/docker/overlay/helper"
)

// Where an image has its files.
const (
	programAt   = "/" + helper.ProcessName
	librariesAt = "/lib/unwind"
)

// Repository begins the names of all sidecar images.
const Repository = "unwind/overlay-helper"

// program is the running program, with the loader and libraries that this process has mapped:
// however it was linked, it runs in an image that holds nothing else.
type program struct {
	files []file
	// ref names the image by the digest of its files, so each build has its own.
	ref string
}

// file is a file of an image.
type file struct {
	at   string
	from *os.File
	size int64
}

// ownProgram reads the running program once, so that replacing the installed file changes nothing.
var ownProgram = sync.OnceValues(func() (*program, error) {
	if !helper.Attended() {
		return nil, errors.New(
			"this program cannot be its own overlay helper; have its main function call container.Attend first")
	}
	p := &program{}
	if err := p.readOwn(); err != nil {
		return nil, fmt.Errorf("the worker's own program cannot be put into an image: %w", err)
	}
	return p, nil
})

// Ref names the image of the running program.
func Ref() (string, error) {
	p, err := ownProgram()
	if err != nil {
		return "", err
	}
	return p.ref, nil
}

func (p *program) readOwn() error {
	exe, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	e, err := elf.NewFile(exe)
	if err != nil {
		return err
	}
	var loaded uint64 // what follows serves debuggers and linkers
	for _, s := range e.Progs {
		loaded = max(loaded, s.Off+s.Filesz)
		if s.Type == elf.PT_INTERP {
			if err := p.addLoader(s); err != nil {
				return err
			}
		}
	}
	p.files = append(p.files, file{programAt, exe, int64(loaded)})
	if len(p.files) > 1 {
		if err := p.addLibraries(); err != nil {
			return err
		}
	}
	sum := sha256.New()
	if err := p.writeTar(sum); err != nil {
		return err
	}
	p.ref = Repository + ":" + hex.EncodeToString(sum.Sum(nil)[:16])
	return nil
}

// addLoader adds the loader that a dynamically linked program names.
func (p *program) addLoader(named *elf.Prog) error {
	name, err := io.ReadAll(named.Open())
	if err != nil {
		return err
	}
	return p.addFile(string(bytes.TrimRight(name, "\x00")), "")
}

// addLibraries adds the mapped libraries, under the names by which the loader looks for them.
func (p *program) addLibraries() error {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return err
	}
	added := map[string]bool{}
	for _, f := range p.files {
		at, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.from.Fd()))
		if err != nil {
			return err
		}
		added[at] = true
	}
	for line := range strings.Lines(string(maps)) {
		const fields = 6 // addresses, rights, offset, device, inode, path
		f := strings.SplitN(strings.Join(strings.Fields(line), " "), " ", fields)
		if len(f) < fields || !strings.Contains(f[1], "x") || !path.IsAbs(f[5]) || added[f[5]] {
			continue
		}
		added[f[5]] = true
		if gone, ok := strings.CutSuffix(f[5], " (deleted)"); ok {
			return fmt.Errorf("its library %s has been replaced since the worker started; restart the worker", gone)
		}
		name := path.Base(f[5])
		if e, err := elf.Open(f[5]); err == nil {
			if names, err := e.DynString(elf.DT_SONAME); err == nil && len(names) > 0 {
				name = names[0]
			}
			e.Close()
		}
		if err := p.addFile(f[5], path.Join(librariesAt, name)); err != nil {
			return err
		}
	}
	return nil
}

// addFile adds a file, under its own name if at is empty.
func (p *program) addFile(name, at string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if at == "" {
		at = name
	}
	p.files = append(p.files, file{at, f, info.Size()})
	return nil
}

// writeTar writes the image's file tree.
func (p *program) writeTar(to io.Writer) error {
	w := tar.NewWriter(to)
	for _, f := range p.files {
		err := w.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg, Name: strings.TrimPrefix(f.at, "/"), Mode: 0o755, Size: f.size, ModTime: time.Unix(0, 0),
		})
		if err != nil {
			return err
		}
		if _, err := io.Copy(w, io.NewSectionReader(f.from, 0, f.size)); err != nil {
			return err
		}
	}
	return w.Close()
}
