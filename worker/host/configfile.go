package host

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/internal/yamlfile"
)

// ReadConfig reads a config file. Its error names the line and the field of all that is wrong with
// it.
func ReadConfig(file string) (c Config, err error) {
	src, err := os.ReadFile(file)
	if err == nil {
		c.file, err = filepath.Abs(file)
	}
	if err != nil {
		return c, fmt.Errorf("config: %w", err)
	}
	var sections []yamlfile.Section
	for _, k := range Kinds {
		sections = append(sections, yamlfile.Section{Name: k.Name(), Into: reflect.New(reflect.TypeOf(k.Sample)).Elem()})
	}
	c.written, err = yamlfile.Read(file, src, &c, sections...)
	for _, s := range sections {
		if !s.Into.IsNil() {
			c.Worlds = append(c.Worlds, s.Into.Interface().(activities.Settings))
		}
	}
	return c, err
}

// cite says where a field stands in the config file, or that it is of the config where it does not
// come from there.
func (c Config) cite(field string) string {
	for name := field; ; {
		if at, ok := c.written[name]; ok {
			overridden := map[string]string{"host": c.Host, "queue": c.Queue, "state": c.State, "listen": c.Listen,
				"schedules": c.Schedules}
			if now, can := overridden[name]; can && now != at.Value {
				break
			}
			return fmt.Sprintf("%s:%d", c.file, at.Line)
		}
		i := strings.LastIndex(name, ".")
		if i < 0 {
			break
		}
		name = name[:i]
	}
	return "config"
}
