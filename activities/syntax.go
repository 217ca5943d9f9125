package activities

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/pelletier/go-toml/v2"
	"go.yaml.in/yaml/v3"
	"mvdan.cc/sh/v3/syntax"
)

// SyntaxCheck requires that a file can be read as what it is to be.
type SyntaxCheck struct {
	// Format is one of Formats.
	Format string `json:"format"`
	// File defaults to the step's own target.
	File string `json:"file,omitempty"`
}

// Formats are those that a SyntaxCheck knows, without any tool on the host.
func Formats() []string { return []string{"json", "yaml", "toml", "hcl", "sh", "bash"} }

func (c SyntaxCheck) parseFile(ctx context.Context, scene Scene) error {
	name := cmp.Or(c.File, scene.Target())
	if name == "" {
		return Errorf(Refused, "file: name the file to look at; this step has no single target")
	}
	if !slices.Contains(Formats(), c.Format) {
		return Errorf(Refused, "format: %q is not one of %s", c.Format, strings.Join(Formats(), ", "))
	}
	raw, err := scene.ReadFile(ctx, name)
	if errors.Is(err, ErrIsFolder) {
		return Errorf(CheckFailed, "%s is a folder", name)
	}
	if err != nil {
		return missingError(name, err)
	}
	if err := refuseDeep(c.Format, name, raw); err != nil {
		return err
	}
	if err := parseAs(c.Format, raw); err != nil {
		return Errorf(CheckFailed, "%s is not %s: %s", name, formatNames[c.Format],
			Tail(MaskerFrom(ctx).String(err.Error()), 500))
	}
	return nil
}

const (
	maxParsed = 64 << 10
	maxOpened = 5000
)

// refuseDeep refuses what could nest so deeply that its parser exhausts the stack, which would end
// the worker. The parsers of the other formats have limits of their own.
func refuseDeep(format, name string, raw []byte) error {
	if !slices.Contains([]string{"hcl", "sh", "bash"}, format) {
		return nil
	}
	opened := bytes.Count(raw, []byte("(")) + bytes.Count(raw, []byte("[")) + bytes.Count(raw, []byte("{"))
	if len(raw) > maxParsed || opened > maxOpened {
		return Errorf(CheckFailed, "%s has %s and %s; a check of %s reads at most %d and %d; use a command check", name,
			CountOf(len(raw), "byte"), CountOf(opened, "opening bracket"), format, maxParsed, maxOpened)
	}
	return nil
}

var formatNames = map[string]string{"json": "JSON", "yaml": "YAML", "toml": "TOML", "hcl": "HCL",
	"sh": "a POSIX shell script", "bash": "a Bash script"}

func parseAs(format string, raw []byte) error {
	switch format {
	case "json":
		return json.Unmarshal(raw, new(any))
	case "yaml":
		return parseYAML(raw)
	case "toml":
		return toml.Unmarshal(raw, new(map[string]any))
	case "hcl":
		_, problems := hclsyntax.ParseConfig(raw, "", hcl.InitialPos)
		if problems.HasErrors() {
			return problems
		}
		return nil
	}
	variant := syntax.LangPOSIX
	if format == "bash" {
		variant = syntax.LangBash
	}
	_, err := syntax.NewParser(syntax.Variant(variant)).Parse(bytes.NewReader(raw), "")
	return err
}

// parseYAML reads all documents of a file. Decoding finds keys that stand twice, too.
func parseYAML(raw []byte) error {
	decoder := yaml.NewDecoder(bytes.NewReader(raw))
	for {
		var document any
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}
