package tasks

import (
	"encoding/json"
	"errors"

	"go.yaml.in/yaml/v3"
)

// ReadParams reads the parameters of a step, as a person has written them: a map, in JSON or YAML.
func ReadParams(src []byte) (json.RawMessage, error) {
	params := map[string]json.RawMessage{}
	if json.Unmarshal(src, &params) == nil && params != nil {
		return src, nil
	}
	read := map[string]any{}
	if err := yaml.Unmarshal(src, &read); err != nil || read == nil {
		return nil, errors.New("must hold a map, the parameters of the step as under with: in a task file")
	}
	return json.Marshal(read)
}
