package configuration

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// Reads is what a configuration reads besides the files in its folder, as far as its text says.
type Reads struct {
	// Paths are absolute.
	Paths []string
	// Unknown are the calls whose path is computed, with where they stand.
	Unknown []string
}

// readers are the functions whose first argument is the path of a file or a folder.
var readers = []string{
	"file", "filebase64", "filebase64sha256", "filebase64sha512", "fileexists", "filemd5", "fileset", "filesha1",
	"filesha256", "filesha512", "templatefile",
}

// maxModules bounds the modules that are looked at.
const maxModules = 200

// FindReads returns what the configuration in dir, and the modules in local folders that it calls,
// read. It starts no terraform: a file that cannot be parsed reads nothing, and terraform says so.
func FindReads(dir string) (Reads, error) {
	f := finder{root: dir, seen: map[string]bool{}}
	if err := f.addModule(dir); err != nil {
		return Reads{}, err
	}
	slices.Sort(f.Paths)
	f.Paths = slices.Compact(f.Paths)
	return f.Reads, nil
}

type finder struct {
	Reads
	root string
	seen map[string]bool
}

func (f *finder) addModule(dir string) error {
	if f.seen[dir] || len(f.seen) == maxModules {
		return nil
	}
	f.seen[dir] = true
	names, err := filepath.Glob(filepath.Join(escapeGlob(dir), "*.tf"))
	if err != nil {
		return err
	}
	for _, name := range names {
		if info, err := os.Stat(name); err != nil || !info.Mode().IsRegular() || info.Size() > maxBundle {
			continue
		}
		content, err := os.ReadFile(name) // links are followed: configurations may share files
		if err != nil {
			return err
		}
		parsed, problems := hclsyntax.ParseConfig(content, name, hcl.InitialPos)
		body, isNative := parsed.Body.(*hclsyntax.Body)
		if problems.HasErrors() || !isNative {
			continue
		}
		known := &hcl.EvalContext{Variables: map[string]cty.Value{"path": cty.ObjectVal(map[string]cty.Value{
			"module": cty.StringVal(dir), "root": cty.StringVal(f.root), "cwd": cty.StringVal(f.root),
		})}}
		_ = hclsyntax.VisitAll(body, func(n hclsyntax.Node) hcl.Diagnostics {
			if call, ok := n.(*hclsyntax.FunctionCallExpr); ok && slices.Contains(readers, call.Name) && len(call.Args) > 0 {
				f.addCall(call, known)
			}
			return nil
		})
		for _, block := range body.Blocks {
			if block.Type != "module" || block.Body.Attributes["source"] == nil {
				continue
			}
			source := text(block.Body.Attributes["source"].Expr, nil)
			if !strings.HasPrefix(source, "./") && !strings.HasPrefix(source, "../") {
				continue // it is not in a folder of this host, or is refused
			}
			folder := filepath.Join(dir, source)
			f.add(folder)
			if err := f.addModule(folder); err != nil {
				return err
			}
		}
	}
	return nil
}

// addCall adds what a call reads. A path that is not absolute begins at the folder that terraform
// runs in.
func (f *finder) addCall(call *hclsyntax.FunctionCallExpr, known *hcl.EvalContext) {
	path := text(call.Args[0], known)
	switch {
	case path == "":
		at := call.Range()
		f.Unknown = append(f.Unknown, fmt.Sprintf("%s at %s:%d", call.Name, filepath.Base(at.Filename), at.Start.Line))
		return
	case strings.HasPrefix(path, "~/"):
		home, err := os.UserHomeDir()
		if err != nil {
			return
		}
		path = filepath.Join(home, path[2:])
	case !filepath.IsAbs(path):
		path = filepath.Join(f.root, path)
	}
	f.add(path)
}

// add adds a path, unless it is in the folder of the configuration, which is the step's own.
func (f *finder) add(path string) {
	if rel, err := filepath.Rel(f.root, path); err != nil || !fs.ValidPath(rel) {
		f.Paths = append(f.Paths, filepath.Clean(path))
	}
}

// text is the value of an expression that is a text without any computation; empty if it is none.
func text(e hclsyntax.Expression, known *hcl.EvalContext) string {
	v, problems := e.Value(known)
	if problems.HasErrors() || v.IsNull() || !v.IsKnown() || v.Type() != cty.String {
		return ""
	}
	return v.AsString()
}
