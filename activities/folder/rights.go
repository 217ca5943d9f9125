package folder

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/snapshot"
)

// rights are those of a process that puts files back.
type rights struct {
	user   int
	groups []int
}

// checkRights refuses content that this worker could not put back.
func checkRights(c snapshot.Content) error {
	groups, err := os.Getgroups()
	if err != nil {
		return err
	}
	return rights{os.Geteuid(), append(groups, os.Getegid())}.check(c)
}

func (r rights) check(c snapshot.Content) error {
	if r.user == 0 {
		return nil
	}
	for at, e := range c {
		var why string
		switch {
		case e.Kind == snapshot.Left:
			continue
		case int(e.UID) != r.user:
			why = fmt.Sprintf("belongs to user %d", e.UID)
		case !slices.Contains(r.groups, int(e.GID)):
			why = fmt.Sprintf("belongs to group %d", e.GID)
		case e.Kind == snapshot.Folder && e.Mode&0o700 != 0o700:
			why = "is a folder that its owner may not change"
		case e.Kind == snapshot.Block || e.Kind == snapshot.Char:
			why = "is a device"
		case strings.Contains(e.Attributes, `"security.`) || strings.Contains(e.Attributes, `"trusted.`):
			why = "has attributes that only root can set"
		default:
			continue
		}
		return activities.Errorf(activities.Refused,
			"path: %s %s, and the worker could not put it back; run the worker as root, or as the owner", at, why)
	}
	return nil
}
