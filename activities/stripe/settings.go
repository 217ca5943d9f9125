package stripe

import "github.com/seed-62bf7108/unwind/activities"

// Kind opens the world from a worker's config.
var Kind = activities.Kind{Sample: &Settings{Key: "KEY"}}

// Settings are the section stripe of a worker's config.
type Settings struct {
	// Key is the name of the secret (in the config's secrets) that holds the API key. Required.
	Key activities.OwnSecret `yaml:"key"`
	// URL is another API address, for an emulator. Defaults to Stripe's own.
	URL string `yaml:"url"`
	// AllowLive permits a live key, which is refused otherwise. Defaults to false.
	AllowLive bool `yaml:"allowLive"`
}

// World implements activities.Settings.
func (*Settings) World() string { return "stripe" }

// Check implements activities.Settings.
func (s *Settings) Check(o activities.Opening, bad activities.Bad) error {
	if !o.Secrets.Has(string(s.Key)) {
		bad("key", "%q is not one of secrets; name the secret that holds the API key", s.Key)
	}
	return nil
}

// Open implements activities.Settings.
func (s *Settings) Open(o activities.Opening) (activities.World, error) {
	return New(Config{Key: func() (string, error) { return o.Secrets.Read(s.Key) }, BaseURL: s.URL,
		AllowLive: s.AllowLive})
}
