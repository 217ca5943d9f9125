package notices

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// When the channel is told first, in a zone that is two hours before UTC: noon is 14:00 there.
func TestWhatMayWaitIsToldLater(t *testing.T) {
	gathering := Channel{Digest: 15 * time.Minute}
	asleep := Channel{Quiet: "13:00-15:30 Europe/Berlin"}
	overnight := Channel{Quiet: "22:00-07:00 Europe/Berlin", Digest: 15 * time.Minute}
	at := func(clock string) time.Time {
		t.Helper()
		moment, err := time.Parse(time.RFC3339, "2026-05-"+clock+":00Z")
		require.NoError(t, err)
		return moment
	}
	short := atGate("deploy", activities.Low)
	short.Until = noon.Add(10 * time.Minute)
	parked := protocol.Waiting{Alert: protocol.Alert{State: "parked", Digest: "sha256:1", At: noon}}
	escalated := atGate("deploy", activities.Low)
	escalated.From = "team"
	late := atGate("deploy", activities.Medium)
	late.At, late.Until = at("04T22:30"), at("06T22:30")
	evening := late
	evening.At = at("04T19:50")
	for name, c := range map[string]struct {
		channel Channel
		w       protocol.Waiting
		want    time.Time
	}{
		"at once without a digest":          {Channel{}, atGate("deploy", activities.Low), noon},
		"low in a digest":                   {gathering, atGate("deploy", activities.Low), at("04T12:15")},
		"high at once":                      {gathering, atGate("deploy", activities.High), noon},
		"a park at once":                    {gathering, parked, noon},
		"an escalation at once":             {gathering, escalated, noon},
		"what lapses before, at once":       {gathering, short, noon},
		"medium after the quiet hours":      {asleep, atGate("deploy", activities.Medium), at("04T13:30")},
		"high also at night":                {asleep, atGate("deploy", activities.High), noon},
		"a park also at night":              {asleep, parked, noon},
		"what lapses at night, at once":     {asleep, short, noon},
		"after midnight, the same morning":  {overnight, late, at("05T05:00")},
		"gathered until the night has come": {overnight, evening, at("05T05:00")},
	} {
		require.Equal(t, c.want, c.channel.dueAt(c.w).UTC(), name)
	}
}

func TestQuietHoursAreReadStrictly(t *testing.T) {
	for _, s := range []string{"22:00-07:00", "22-07 UTC", "22:00 UTC", "22:00-22:00 UTC", "25:00-07:00 UTC",
		"22:00-07:00 Atlantis"} {
		_, err := parseQuiet(s)
		require.Error(t, err, s)
	}
}

func TestBadChannelsAreRefused(t *testing.T) {
	isSecret := func(name string) bool { return name == "URL" }
	webhook, ann := &Slack{URL: "URL"}, []string{"a@b.c"}
	for want, all := range map[string][]Channel{
		"": {{Name: "ops", Slack: webhook, Escalate: &Escalation{After: time.Hour, To: "boss"}},
			{Name: "boss", Ntfy: &Ntfy{URL: "URL"}}, {Name: "dba", Slack: webhook, Groups: []string{"dba"}}},
		`notices: no channel is told of gates that no group is asked about`: {
			{Name: "dba", Slack: webhook, Groups: []string{"dba"}, Escalate: &Escalation{After: time.Hour, To: "boss"}},
			{Name: "boss", Slack: webhook}},
		`notices[0].name: "Ops!" must be`:                              {{Name: "Ops!", Slack: webhook}},
		`notices[1].name: "ops" is the name of another channel too`:    {{Name: "ops", Slack: webhook}, {Name: "ops", Slack: webhook}},
		`notices[0].name: "ops" has 0 of webhook, slack`:               {{Name: "ops"}},
		`notices[0].name: "ops" has 2 of webhook, slack`:               {{Name: "ops", Slack: webhook, Ntfy: &Ntfy{URL: "URL"}}},
		`notices[0].slack.url: "NONE" is not one of secrets`:           {{Name: "ops", Slack: &Slack{URL: "NONE"}}},
		`notices[0].webhook.key: "" is not one of secrets`:             {{Name: "ops", Webhook: &Webhook{URL: "URL"}}},
		`notices[0].ntfy.token: "NONE" is not one of secrets`:          {{Name: "ops", Ntfy: &Ntfy{URL: "URL", Token: "NONE"}}},
		`notices[0].remind: 1s is too short; give at least 1m`:         {{Name: "ops", Slack: webhook, Remind: time.Second}},
		`notices[0].escalate.to: "x" is not the name of another`:       {{Name: "ops", Slack: webhook, Escalate: &Escalation{After: time.Hour, To: "x"}}},
		`notices[0].escalate.after: 0s is too short; give at least 1m`: {{Name: "ops", Slack: webhook, Escalate: &Escalation{To: "b"}}, {Name: "b", Slack: webhook}},
		`notices[1].escalate.to: "b" closes a circle: a → b → a;`: {
			{Name: "team", Slack: webhook, Escalate: &Escalation{After: time.Hour, To: "a"}},
			{Name: "a", Slack: webhook, Escalate: &Escalation{After: time.Hour, To: "b"}},
			{Name: "b", Slack: webhook, Escalate: &Escalation{After: time.Hour, To: "a"}}},
		`notices[0].quiet: "at night" must be two times`:              {{Name: "ops", Slack: webhook, Quiet: "at night"}},
		`notices[0].mail.server: "mx:25" is no server: write smtp://`: {{Name: "ops", Mail: &Mail{Server: "mx:25", From: "a@b.c", To: ann}}},
		`notices[0].mail.to: it is missing`:                           {{Name: "ops", Mail: &Mail{Server: "smtp://mx:25", From: "a@b.c"}}},
		`notices[0].mail: "ann" in from or to must be an address`:     {{Name: "ops", Mail: &Mail{Server: "smtp://mx:25", From: "a@b.c", To: []string{"ann"}}}},
		`notices[0].mail.password: "" is not one of secrets`:          {{Name: "ops", Mail: &Mail{Server: "smtp://mx:25", From: "a@b.c", To: ann, User: "u"}}},
		`notices[0].mail.user: it is missing`:                         {{Name: "ops", Mail: &Mail{Server: "smtp://mx:25", From: "a@b.c", To: ann, Password: "URL"}}},
		`notices[0].digest: -1m0s, or remind, 0s, is negative`:        {{Name: "ops", Slack: webhook, Digest: -time.Minute}},
	} {
		var got []string
		Check(all, isSecret, func(field, format string, args ...any) {
			got = append(got, field+": "+fmt.Sprintf(format, args...))
		})
		if want == "" {
			require.Empty(t, got)
			continue
		}
		require.Contains(t, strings.Join(got, "\n"), want)
	}
}

func TestAGroupsChannelIsToldOfItsGates(t *testing.T) {
	slack := &Slack{URL: "URL"}
	all := []Channel{{Name: "all", Slack: slack, Escalate: &Escalation{After: time.Hour, To: "boss"}},
		{Name: "boss", Slack: slack}, {Name: "dba", Slack: slack, Groups: []string{"dba", "sre"}}}
	require.Equal(t, []string{"all", "dba"}, Takers(all, protocol.Alert{Groups: []string{"web", "sre"}}))
	require.Equal(t, []string{"all"}, Takers(all, protocol.Alert{Groups: []string{"web"}}))
	require.Equal(t, []string{"all"}, Takers(all, protocol.Alert{}))
}
