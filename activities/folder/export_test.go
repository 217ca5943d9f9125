package folder

import "github.com/seed-62bf7108/unwind/activities/snapshot"

// DescribeOver describes a difference in what lies over the folders of an image.
func DescribeOver(at string, was, is snapshot.Entry, image ...string) string {
	return lowers(image).describe(at, was, is)
}
