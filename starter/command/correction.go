package command

import (
	"encoding/json"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/starter/usage"
)

// readCorrection makes the parameters of --with: one FILE holds all of them, KEY=VALUE replaces one
// of those that the step had.
func (p *program) readCorrection(with []string, had json.RawMessage) (json.RawMessage, error) {
	if len(with) == 0 {
		return nil, nil
	}
	if len(with) == 1 && !strings.Contains(with[0], "=") {
		src, err := p.readSource(with[0])
		if err != nil {
			return nil, err
		}
		params, err := tasks.ReadParams(src)
		if err != nil {
			return nil, usage.Errorf("--with %s: %w", with[0], err)
		}
		return params, nil
	}
	params := map[string]json.RawMessage{}
	if err := json.Unmarshal(had, &params); err != nil && len(had) > 0 {
		return nil, fmt.Errorf("the parameters of the step: %w", err)
	}
	for _, pair := range with {
		key, value, found := strings.Cut(pair, "=")
		if !found || key == "" {
			return nil, usage.Errorf("--with %s: give one FILE alone, or KEY=VALUE as often as needed", pair)
		}
		var read any
		if err := yaml.Unmarshal([]byte(value), &read); err != nil {
			return nil, usage.Errorf("--with %s: the value is no YAML: %v", pair, err)
		}
		raw, err := encodeParam(read)
		if err != nil {
			return nil, err
		}
		params[key] = raw
	}
	return encodeParam(params)
}

func encodeParam(value any) (json.RawMessage, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, usage.Errorf("--with: %v", err)
	}
	return raw, nil
}
