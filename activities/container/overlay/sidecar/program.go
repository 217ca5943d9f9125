package sidecar

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/seed-62bf7108/unwind/activities/container/overlay/helper"
)

// Program is the one that a sidecar runs: any that calls helper.Attend first in main.
type Program struct {
	file    string
	content []byte
}

const wayOut = "build one with CGO_ENABLED=0 go build ./activities/container/overlay/standalone and name it"

// ReadProgram reads the program in a file, once: what becomes of the file later changes nothing. Empty is the program that
// runs now.
func ReadProgram(file string) (*Program, error) {
	own := file == ""
	if own {
		file = "/proc/self/exe"
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%q cannot be read (%w); %s", file, err, wayOut)
	}
	e, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("%q is not a program for Linux (%w); %s", file, err, wayOut)
	}
	for _, p := range e.Progs {
		switch {
		case p.Type != elf.PT_INTERP:
		case own:
			return nil, fmt.Errorf("%q: without a program, a sidecar runs the worker's own, which is linked dynamically and cannot run in an image of its own; %s", "", wayOut)
		default:
			return nil, fmt.Errorf("%q is linked dynamically and cannot run in an image of its own; %s", file, wayOut)
		}
	}
	return &Program{file, content}, nil
}

// Ref names the image that holds the program.
func (p *Program) Ref() string {
	sum := sha256.Sum256(p.content)
	return "unwind/overlay-helper:" + hex.EncodeToString(sum[:16])
}

// root is the whole file tree of the image as a tar stream.
func (p *Program) root() (io.Reader, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	err := w.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: helper.ProcessName, Mode: 0o755, Size: int64(len(p.content)), ModTime: time.Unix(0, 0),
	})
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(p.content); err != nil {
		return nil, err
	}
	return &b, w.Close()
}
