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

// LeftName is what a container is called that a token has brought forward, and that an undo of it
// has left aside again, for the token that had set it aside. From is the name that it had before.
func LeftName(token, from string) string { return NamePrefix(token) + "left-" + OwnerOf(from) }

// FormerName is the name that is held once a container is brought forward from another one, so that
// no late call of an earlier step can take it away. The name that only an undo gives it stays free:
// held, it says that the undo has ended.
func FormerName(from string) string {
	if leftNames.MatchString(from) {
		return from
	}
	return NameFor(OwnerOf(from))
}

// GiverOf is the token that has given a container a name.
func GiverOf(name string) string {
	token, _, _ := strings.Cut(strings.TrimPrefix(name, "unwind-"), "-")
	return token
}

// OwnerOf is the token that has set a container aside which has this name.
func OwnerOf(name string) string {
	if _, owner, isLeft := strings.Cut(name, "-left-"); isLeft {
		return owner
	}
	return GiverOf(name)
}

var (
	stepNames  = regexp.MustCompile(`^unwind-[0-9a-f]{32}-`)
	leftNames  = regexp.MustCompile(`^unwind-[0-9a-f]{32}-left-[0-9a-f]{32}$`)
	asideNames = regexp.MustCompile(`^/unwind-[0-9a-f]{32}-(aside|return|left-[0-9a-f]{32})$`)
)

// IsStepName says that a container with this name belongs to a step.
func IsStepName(name string) bool { return stepNames.MatchString(name) }

// Is says that a step has set a container aside: it does not stand in its place.
func Is(c container.InspectResponse) bool { return asideNames.MatchString(c.Name) }
