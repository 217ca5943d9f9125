package disk

import (
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
)

// The names of snapshots in an image. Those of others do not begin so.
const (
	ours           = "unwind-"
	checkpointName = "cp-"
	beforeName     = "before-"
	leftName       = "left-"
)

// nameOf is the name of the checkpoint that a token makes.
func nameOf(token string) string { return checkpointName + token }

// snapshotOf is the name of the snapshot that is a checkpoint.
func snapshotOf(checkpoint string) string { return ours + checkpoint }

// beforeOf is the name of the snapshot that has what a disk held before a token's step.
func beforeOf(token string) string { return ours + beforeName + token }

// leftOf is the name of the snapshot that has what a token's step has put back.
func leftOf(token string) string { return ours + leftName + token }

// tokenOf is the token that has made the checkpoint with a name.
func tokenOf(name string) (string, error) {
	token, is := strings.CutPrefix(name, checkpointName)
	if !is || len(token) != 32 || strings.Trim(token, "0123456789abcdef") != "" {
		return "", activities.Errorf(activities.Refused,
			"checkpoint: %q is no name of a checkpoint; take the output checkpoint of a step of %s", name, keepName)
	}
	return token, nil
}

// hasOurs says that the image has snapshots of steps.
func (i *image) hasOurs() bool {
	for _, s := range i.Snapshots {
		if strings.HasPrefix(s.Name, ours) {
			return true
		}
	}
	return false
}
