package mcpserver

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"go.yaml.in/yaml/v3"

	"github.com/seed-62bf7108/unwind/activities/declared"
)

// Declarations say what the tools of a server do, and how that is undone. A tool that is not among
// them is irreversible.
type Declarations struct {
	// Local means that what a call does ends with the server's process. Defaults to false: the server
	// may have passed a call on to another machine, where it can still arrive.
	Local bool `yaml:"local"`
	// TrustReadOnlyHint takes the server's word, the annotation readOnlyHint, for tools that are not
	// declared. Defaults to false.
	TrustReadOnlyHint bool `yaml:"trustReadOnlyHint"`
	// Tools are declared by name.
	Tools declared.Tools `yaml:"tools"`
}

// ReadDeclarations reads a file of declarations.
func ReadDeclarations(file string) (Declarations, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return Declarations{}, fmt.Errorf("declarations: %w", err)
	}
	d, err := ParseDeclarations(raw)
	if err != nil {
		return d, fmt.Errorf("declarations %s: %w", file, err)
	}
	return d, nil
}

// ParseDeclarations reads declarations, and reports every fault in them.
func ParseDeclarations(raw []byte) (d Declarations, err error) {
	y := yaml.NewDecoder(bytes.NewReader(raw))
	y.KnownFields(true)
	if err := y.Decode(&d); err != nil && !errors.Is(err, io.EOF) {
		return d, err
	}
	return d, d.Tools.Validate("tool")
}

// class is how a call of a tool may be made.
type class string

// The classes, by the action that makes such a call.
const (
	reads        class = "mcp.read"
	reversible   class = "mcp.call"
	irreversible class = "mcp.call.irreversible"
)

// classOf is the class of a tool; isReadOnly is what its annotation says.
func (d Declarations) classOf(tool string, isReadOnly bool) class {
	it, is := d.Tools[tool]
	switch {
	case it.Reads, !is && d.TrustReadOnlyHint && isReadOnly:
		return reads
	case len(it.Undo) > 0:
		return reversible
	}
	return irreversible
}

// ActionFor is the action that calls a tool; isReadOnly is what its annotation says.
func (d Declarations) ActionFor(tool string, isReadOnly bool) string {
	return string(d.classOf(tool, isReadOnly))
}
