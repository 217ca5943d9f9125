package command

import (
	"crypto/rand"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"github.com/seed-62bf7108/unwind/activities/stripe"
	"github.com/seed-62bf7108/unwind/activities/stripe/emulator"
	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/worker/host"
)

// emulatorKey is the name of the secret that holds the key for the emulator, and of the file in the
// state folder that it is in.
const emulatorKey = "STRIPE_EMULATOR_KEY"

// emulateStripe starts an emulator of Stripe, until stop, and returns the config with the world
// stripe on it.
func emulateStripe(c host.Config) (_ host.Config, url string, stop func(), err error) {
	if host.SettingsOf[*stripe.Settings](c) != nil {
		return c, "", nil,
			usage.Errorf(
				"--stripe-emulator: the config has a Stripe account already; leave out the flag, or stripe in the config")
	}
	if c, err = c.WithDefaults(); err != nil {
		return c, "", nil, usage.Wrap(err)
	}
	if err := os.MkdirAll(c.State, 0o700); err != nil {
		return c, "", nil, fmt.Errorf("state folder: %w", err)
	}
	key := filepath.Join(c.State, emulatorKey)
	if err := os.WriteFile(key, []byte("sk_test_"+rand.Text()), 0o600); err != nil {
		return c, "", nil, fmt.Errorf("state folder: %w", err)
	}
	// Each emulator is another account, so an undo of what an earlier one held parks instead of
	// finding nothing to undo.
	em := emulator.New(emulator.Options{Account: "acct_emulator" + rand.Text()})
	server, err := em.Start("127.0.0.1:0")
	if err != nil {
		return c, "", nil, err
	}
	c.Secrets = maps.Clone(c.Secrets)
	if c.Secrets == nil {
		c.Secrets = map[string]string{}
	}
	c.Secrets[emulatorKey] = "file:" + key
	c = c.With(&stripe.Settings{Key: emulatorKey, URL: server.URL})
	return c, server.URL, func() { _ = server.Close() }, nil
}
