package aside

import (
	"regexp"
	"strings"

	"github.com/docker/docker/api/types/container"
)

// NamePrefix begins the names of the containers that a token makes; what they are for follows, and
// a part of each one's own.
func NamePrefix(token string) string { return "unwind-" + token + "-" }

// NameFor is what a container is called that a token has set aside, and ReturnName what it is called
// on the way back.
func NameFor(token string) string { return NamePrefix(token) + "aside" }

// ReturnName is explained at [NameFor].
func ReturnName(token string) string { return NamePrefix(token) + "return" }

// OtherName is the other one of the two names that a token has for what it has set aside.
func OtherName(name string) string {
	if token, is := strings.CutSuffix(name, "aside"); is {
		return token + "return"
	}
	return strings.TrimSuffix(name, "return") + "aside"
}

// TokenOf is the token whose name a container has that was set aside.
func TokenOf(name string) string {
	token, _, _ := strings.Cut(strings.TrimPrefix(name, "unwind-"), "-")
	return token
}

var (
	stepNames  = regexp.MustCompile(`^unwind-[0-9a-f]{32}-`)
	asideNames = regexp.MustCompile(`^/unwind-[0-9a-f]{32}-(aside|return)$`)
)

// IsStepName says that a container with this name belongs to a step.
func IsStepName(name string) bool { return stepNames.MatchString(name) }

// Is says that a step has set a container aside: it does not stand in its place.
func Is(c container.InspectResponse) bool { return asideNames.MatchString(c.Name) }
