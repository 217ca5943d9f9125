package lineage

import (
	"regexp"

	"github.com/docker/docker/api/types/container"
)

// NamePrefix begins the names of the containers that a token makes; what they are for follows, and
// a part of each one's own.
func NamePrefix(token string) string { return "unwind-" + token + "-" }

// AsideName is what container.replace calls a container that it has put aside, and ReturnName what
// its undo calls it on the way back.
func AsideName(token string) string { return NamePrefix(token) + "aside" }

// ReturnName is explained at [AsideName].
func ReturnName(token string) string { return NamePrefix(token) + "return" }

var (
	stepNames  = regexp.MustCompile(`^unwind-[0-9a-f]{32}-`)
	asideNames = regexp.MustCompile(`^/unwind-[0-9a-f]{32}-(aside|return)$`)
)

// IsStepName says that a container with this name belongs to a step.
func IsStepName(name string) bool { return stepNames.MatchString(name) }

// IsPutAside says that a replacement has put a container aside: it does not stand in its place.
func IsPutAside(c container.InspectResponse) bool { return asideNames.MatchString(c.Name) }
