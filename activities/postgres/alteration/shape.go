package alteration

import (
	"fmt"
	"slices"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres/schema"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// sealShape notes how the step leaves what a statement has made, and all that would go with it.
func (a *Alteration) sealShape(c *server.Connection) error {
	var err error
	if a.Things, err = schema.ThingsOf(c, a.things); err != nil {
		return err
	}
	lines, err := a.describeThings(c)
	for _, line := range lines {
		a.Shape = append(a.Shape, digestLine(line))
	}
	return err
}

// findReworked returns what others did to that which a statement has made, or added to it, and
// would go with it; empty if nothing.
func (a *Alteration) findReworked(c *server.Connection) (problem string, err error) {
	lines, err := a.describeThings(c)
	if err != nil {
		return "", err
	}
	for _, line := range lines {
		if !slices.Contains(a.Shape, digestLine(line)) {
			return fmt.Sprintf("what the step made (%s) is not as it left it; what others did to it would be lost: %s", a.Does,
				line), nil
		}
	}
	if len(lines) != len(a.Shape) {
		return fmt.Sprintf("what the step made (%s) is not as it left it: a part of it is gone", a.Does), nil
	}
	return "", nil
}

func (a *Alteration) describeThings(c *server.Connection) ([]string, error) {
	if a.Things == nil {
		return nil, nil
	}
	return schema.DescribeGoing(c, a.Things)
}

func digestLine(line string) string { return activities.DigestOf([]byte(line)).Short() }
