// Package notices tells people, where they are, of what waits for them: by webhook, Slack, mail and
// ntfy.
package notices

import (
	"fmt"
	"net/mail"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// Channel is one way to reach people: exactly one of Webhook, Slack, Mail and Ntfy is given.
type Channel struct {
	// Name names the channel in Escalate, in metrics and in the id of its workflow. Required.
	Name string `yaml:"name"`
	// Webhook is an address of your own that takes JSON.
	Webhook *Webhook `yaml:"webhook"`
	// Slack is an incoming webhook of Slack, or of what takes the same.
	Slack *Slack `yaml:"slack"`
	// Mail is sent by SMTP.
	Mail *Mail `yaml:"mail"`
	// Ntfy is a topic of an ntfy server.
	Ntfy *Ntfy `yaml:"ntfy"`
	// Groups are the groups of the policy whose gates the channel is told of. Defaults to everything,
	// or to nothing but escalations for a channel that another one escalates to.
	Groups []string `yaml:"groups"`
	// Digest is for how long gates of low and medium risk are gathered into one notice. Defaults to 0:
	// each is told at once.
	Digest time.Duration `yaml:"digest"`
	// Remind is how often the channel is told again of what still waits. Defaults to 0: never.
	Remind time.Duration `yaml:"remind"`
	// Escalate has another channel told of what still waits after a time. Defaults to none.
	Escalate *Escalation `yaml:"escalate"`
	// Quiet are hours in which gates of low and medium risk are not told, such as "22:00-07:00
	// Europe/Berlin". Defaults to none.
	Quiet string `yaml:"quiet"`
}

// Escalation says when another channel is told.
type Escalation struct {
	// After is for how long something waits before. Required.
	After time.Duration `yaml:"after"`
	// To is the name of the channel that is told. Required.
	To string `yaml:"to"`
}

// Webhook is an address that is sent a Notice as signed JSON.
type Webhook struct {
	// URL is the name of the secret that is the address. Required.
	URL activities.OwnSecret `yaml:"url"`
	// Key is the name of the secret that requests are signed with. Required.
	Key activities.OwnSecret `yaml:"key"`
}

// Slack is an incoming webhook.
type Slack struct {
	// URL is the name of the secret that is its address. Required.
	URL activities.OwnSecret `yaml:"url"`
}

// Ntfy is a topic.
type Ntfy struct {
	// URL is the name of the secret that is its address, such as https://ntfy.sh/TOPIC. Required.
	URL activities.OwnSecret `yaml:"url"`
	// Token is the name of the secret that is the access token. Defaults to none.
	Token activities.OwnSecret `yaml:"token"`
}

// Mail is sent through a server that must offer TLS.
type Mail struct {
	// Server is smtp://HOST:PORT, where TLS is asked for by STARTTLS, or smtps://HOST:PORT, where it
	// begins at once. Required.
	Server string `yaml:"server"`
	// CA is a file of certificates that the server's may be signed with, in PEM. Defaults to those of
	// the system.
	CA string `yaml:"ca"`
	// User signs in, with Password, the name of the secret. Defaults to none.
	User     string               `yaml:"user"`
	Password activities.OwnSecret `yaml:"password"`
	// From is the sender's address. Required.
	From string `yaml:"from"`
	// To are the addresses of those who are told. Required.
	To []string `yaml:"to"`
}

var channelName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,39}$`)

// Check complains of every invalid field of the channels.
func Check(all []Channel, isSecret func(name string) bool, bad activities.Bad) {
	if len(all) > 0 && !slices.ContainsFunc(all, func(c Channel) bool { return takes(all, c, protocol.Alert{}) }) {
		bad("notices", "no channel is told of gates that no group is asked about, nor of parked undos; leave out the groups "+
			"of one that no other escalates to")
	}
	for i, c := range all {
		field := fmt.Sprintf("notices[%d].", i)
		of := func(name, format string, args ...any) { bad(field+name, format, args...) }
		if !channelName.MatchString(c.Name) {
			of("name", "%q must be lower-case letters, digits and dashes, at most 40", c.Name)
		}
		if slices.ContainsFunc(all[:i], func(o Channel) bool { return o.Name == c.Name }) {
			of("name", "%q is the name of another channel too", c.Name)
		}
		if min(c.Digest, c.Remind) < 0 {
			of("digest", "%s, or remind, %s, is negative; give a time such as 15m", c.Digest, c.Remind)
		}
		if c.Remind > 0 && c.Remind < time.Minute {
			of("remind", "%s is too short; give at least 1m", c.Remind)
		}
		if e := c.Escalate; e != nil {
			if e.After < time.Minute {
				of("escalate.after", "%s is too short; give at least 1m", e.After)
			}
			if e.To == c.Name || !slices.ContainsFunc(all, func(o Channel) bool { return o.Name == e.To }) {
				of("escalate.to", "%q is not the name of another channel", e.To)
			}
			if circle := circleOf(all, c); len(circle) > 2 {
				of("escalate.to", "%q closes a circle: %s; leave out the escalate of one of them", e.To,
					strings.Join(circle, " → "))
			}
		}
		if _, err := parseQuiet(c.Quiet); err != nil {
			of("quiet", "%q %v", c.Quiet, err)
		}
		c.checkWay(isSecret, of)
	}
}

// circleOf returns the channels that escalations pass from one back to it, both ends included; nil if
// they do not come back.
func circleOf(all []Channel, from Channel) []string {
	names := []string{from.Name}
	for c := from; c.Escalate != nil && len(names) <= len(all); {
		names = append(names, c.Escalate.To)
		if c.Escalate.To == from.Name {
			return names
		}
		c, _ = find(all, c.Escalate.To) // one that is not there escalates to nobody
	}
	return nil
}

// checkWay checks how the channel reaches people.
func (c Channel) checkWay(isSecret func(name string) bool, bad activities.Bad) {
	ways := 0
	secret := func(field string, name activities.OwnSecret, isNeeded bool) {
		if name == "" && !isNeeded {
			return
		}
		if !isSecret(string(name)) {
			bad(field, "%q is not one of secrets; name the secret that holds it", name)
		}
	}
	if c.Webhook != nil {
		ways++
		secret("webhook.url", c.Webhook.URL, true)
		secret("webhook.key", c.Webhook.Key, true)
	}
	if c.Slack != nil {
		ways++
		secret("slack.url", c.Slack.URL, true)
	}
	if c.Ntfy != nil {
		ways++
		secret("ntfy.url", c.Ntfy.URL, true)
		secret("ntfy.token", c.Ntfy.Token, false)
	}
	if c.Mail != nil {
		ways++
		secret("mail.password", c.Mail.Password, c.Mail.User != "")
		c.Mail.check(bad)
	}
	if ways != 1 {
		bad("name", "%q has %d of webhook, slack, mail and ntfy; give it one", c.Name, ways)
	}
}

func (m Mail) check(bad activities.Bad) {
	if _, _, _, err := splitServer(m.Server); err != nil {
		bad("mail.server", "%q is no server: %v", m.Server, err)
	}
	if m.User == "" && m.Password != "" {
		bad("mail.user", "it is missing; say who signs in with the password")
	}
	if len(m.To) == 0 {
		bad("mail.to", "it is missing; name at least one address")
	}
	for _, address := range append([]string{m.From}, m.To...) {
		if _, err := mail.ParseAddress(address); err != nil {
			bad("mail", "%q in from or to must be an address, such as ops@example.com", address)
		}
	}
}

// Takers are the channels that are told of an alert at first.
func Takers(all []Channel, a protocol.Alert) (names []string) {
	for _, c := range all {
		if takes(all, c, a) {
			names = append(names, c.Name)
		}
	}
	return names
}

// takes reports whether a channel is told of an alert at first.
func takes(all []Channel, c Channel, a protocol.Alert) bool {
	if len(c.Groups) > 0 {
		return slices.ContainsFunc(c.Groups, func(g string) bool { return slices.Contains(a.Groups, g) })
	}
	return !slices.ContainsFunc(all, func(o Channel) bool { return o.Escalate != nil && o.Escalate.To == c.Name })
}

// find returns the channel of a name.
func find(all []Channel, name string) (Channel, error) {
	if i := slices.IndexFunc(all, func(c Channel) bool { return c.Name == name }); i >= 0 {
		return all[i], nil
	}
	return Channel{Name: name},
		fmt.Errorf("the config of this worker has no channel %q; give all workers the same notices", name)
}
