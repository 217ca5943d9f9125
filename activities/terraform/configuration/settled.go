package configuration

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclwrite"
)

// transitions are the blocks that say how a state becomes what the configuration describes.
var transitions = []string{"import", "moved", "removed"}

// Settled is the configuration for an undo: without its import, moved and removed blocks, which
// would import, move and forget anew what the undo has put back, and without prevent_destroy, since
// the undo destroys nothing but what the step made. What comes from modules outside of the folder
// stays as it is.
func (b Bundle) Settled() Bundle { return b.settle(true) }

// Arrived is the configuration for a restore: without its import, moved and removed blocks, since
// the state that it goes back to was past them. What is protected stays so.
func (b Bundle) Arrived() Bundle { return b.settle(false) }

func (b Bundle) settle(unprotect bool) Bundle {
	files := maps.Clone(b.Files)
	for name, f := range files {
		switch {
		case strings.HasSuffix(name, ".tf"):
			f.Content = settle(name, f.Content, unprotect)
		case strings.HasSuffix(name, ".tf.json"):
			f.Content = settleJSON(f.Content, unprotect)
		}
		files[name] = f
	}
	b.Files = files
	return b
}

// settle returns a file without these blocks; one that cannot be parsed stays as it is, and
// terraform says so.
func settle(name string, content []byte, unprotect bool) []byte {
	file, diagnostics := hclwrite.ParseConfig(content, name, hcl.InitialPos)
	if diagnostics.HasErrors() {
		return content
	}
	changed := false
	for _, block := range file.Body().Blocks() {
		if slices.Contains(transitions, block.Type()) {
			changed = file.Body().RemoveBlock(block) || changed
		}
		if block.Type() != "resource" || !unprotect {
			continue
		}
		for _, lifecycle := range block.Body().Blocks() {
			if lifecycle.Type() == "lifecycle" {
				changed = lifecycle.Body().RemoveAttribute(preventDestroy) != nil || changed
			}
		}
	}
	if !changed {
		return content
	}
	return file.Bytes()
}

const preventDestroy = "prevent_destroy"

// settleJSON is settle for a file in JSON, where a block may stand in a list.
func settleJSON(content []byte, unprotect bool) []byte {
	var file any
	d := json.NewDecoder(bytes.NewReader(content))
	d.UseNumber()
	if d.Decode(&file) != nil {
		return content
	}
	for _, root := range objects(file) {
		for _, name := range transitions {
			delete(root, name)
		}
		for _, types := range objects(root["resource"]) {
			if !unprotect {
				break
			}
			for _, names := range types {
				for _, named := range objects(names) {
					for _, resource := range named {
						removeProtection(resource)
					}
				}
			}
		}
	}
	settled, err := json.Marshal(file)
	if err != nil {
		return content
	}
	return settled
}

func removeProtection(resource any) {
	for _, body := range objects(resource) {
		for _, lifecycle := range objects(body["lifecycle"]) {
			delete(lifecycle, preventDestroy)
		}
	}
}
