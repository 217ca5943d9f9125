package stage

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/seed-62bf7108/unwind/examples/found"
)

// Committed returns the changes that an example makes here when it commits, by world.
func (s *Stage) Committed(example string) map[string][]found.Want {
	if example == "session" {
		return s.built()
	}
	return s.published()
}

// built is what the session leaves of all that its agent tries.
func (s *Stage) built() map[string][]found.Want {
	return map[string][]found.Want{
		found.FilesWorld:     {{Change: "+ current.json", Facts: holds(`{"release": "greeter 1.0.0"}` + "\n")}},
		found.ContainerWorld: {{Change: "+ /srv/app/greet", Facts: holds(`echo "Hello, $1"` + "\n")}},
	}
}

// published is what publish-ok leaves.
func (s *Stage) published() map[string][]found.Want {
	one := found.Facts{"number": "1"}
	return map[string][]found.Want{
		found.FilesWorld: {
			{Change: "~ app.yml", Facts: holds("release: 2.0.0\nworkers: 8\n")},
			{Change: "~ routes.json", Facts: holds(`{"/": "app", "/beta": "app-2.0.0"}` + "\n")},
			{Change: "+ current.json", Facts: holds(`{"release": "2.0.0"}` + "\n")},
		},
		found.ContainerWorld: {
			{Change: "~ /srv/app/VERSION", Facts: holds("2.0.0\n")},
			{Change: "- /srv/app/legacy.conf"},
		},
		found.TerraformWorld: {
			{Change: "~ terraform_data.current"},
			{Change: `+ terraform_data.marker["us"]`},
			{Change: "~ output.regions", Facts: found.Facts{"value": `["eu","us"]`}},
			{Change: "+ effects/us", Facts: holds("open")},
		},
		found.StripeWorld: {
			{Change: "+ live customer active", Facts: one},
			{Change: "+ live coupon active", Facts: one},
		},
	}
}

// holds returns the fact that a file has this content.
func holds(content string) found.Facts {
	sum := sha256.Sum256([]byte(content))
	return found.Facts{"sha256": hex.EncodeToString(sum[:])}
}
