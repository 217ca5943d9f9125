package workspace

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/url"
	"path/filepath"

	"github.com/seed-62bf7108/unwind/activities/terraform/configuration"
)

// Place says where the state of the workspace is: the same for every configuration that uses it.
func (ws *Workspace) Place() (string, error) {
	if ws.StateFile != "" {
		dir, err := filepath.EvalSymlinks(filepath.Dir(ws.StateFile))
		if errors.Is(err, fs.ErrNotExist) {
			dir, err = filepath.Dir(ws.StateFile), nil
		}
		return filepath.Join(dir, filepath.Base(ws.StateFile)), err
	}
	kind, settings, err := ws.backend()
	for name, v := range settings {
		text, isText := v.(string)
		switch {
		case v == nil || configuration.SecretSettings.MatchString(name):
			delete(settings, name)
		case isText:
			if u, err := url.Parse(text); err == nil && u.User != nil {
				u.User = nil
				settings[name] = u.String()
			}
		}
	}
	b, _ := json.Marshal(settings) // it came out of JSON
	return kind + " " + string(b), err
}
