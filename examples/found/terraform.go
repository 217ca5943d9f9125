package found

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// StateFile is the name of a local backend's state.
const StateFile = "terraform.tfstate"

// Terraform reads the state file of a folder: each resource with its attributes, each output with
// its value. A missing or empty file holds nothing.
func Terraform(folder string) (Snapshot, error) {
	s := Snapshot{}
	raw, err := os.ReadFile(filepath.Join(folder, StateFile))
	if os.IsNotExist(err) || err == nil && len(raw) == 0 {
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	var state struct {
		Outputs map[string]struct {
			Value     json.RawMessage
			Sensitive bool
		}
		Resources []struct {
			Module, Mode, Type, Name, Provider string
			Instances                          []struct {
				IndexKey   any `json:"index_key"`
				Status     string
				Deposed    string
				Attributes map[string]json.RawMessage
			}
		}
	}
	if err := json.Unmarshal(raw, &state); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(folder, StateFile), err)
	}
	for name, o := range state.Outputs {
		s["output."+name] = Facts{"value": compact(o.Value), "sensitive": fmt.Sprint(o.Sensitive)}
	}
	for _, r := range state.Resources {
		for _, i := range r.Instances {
			address := r.Type + "." + r.Name
			if r.Mode == "data" {
				address = "data." + address
			}
			if r.Module != "" {
				address = r.Module + "." + address
			}
			if i.IndexKey != nil {
				key, _ := json.Marshal(i.IndexKey) // it came out of JSON
				address += "[" + string(key) + "]"
			}
			f := Facts{"provider": r.Provider, "status": i.Status, "deposed": i.Deposed}
			for name, value := range i.Attributes {
				f[name] = compact(value)
			}
			s[address] = f
		}
	}
	return s, nil
}

// compact returns a canonical text of a value.
func compact(raw json.RawMessage) string {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return string(raw)
	}
	out, _ := json.Marshal(v) // it came out of JSON
	return string(out)
}
