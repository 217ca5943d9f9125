package notices

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// atGate waits at a gate since noon, for four hours.
func atGate(step string, risk activities.Risk) protocol.Waiting {
	return protocol.Waiting{Alert: protocol.Alert{
		Task: "release", Run: "r", Step: step, Action: "file.write", State: protocol.Gated, Reason: "the task file asks",
		Digest: activities.Digest("sha256:" + step), At: noon, Summary: "write <1> file & more", Risk: risk,
		Until: noon.Add(4 * time.Hour),
	}}
}

// request is what a receiver was sent.
type request struct {
	path   string
	header http.Header
	body   []byte
}

// receiver is a server that answers with a status, and keeps what it was sent.
func receiver(t *testing.T, status int) (address string, got chan request) {
	got = make(chan request, 100)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- request{r.URL.Path, r.Header, body}
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(status)
	}))
	t.Cleanup(s.Close)
	return s.URL, got
}

// desk has one channel, and these secrets.
func desk(c Channel, secrets map[activities.OwnSecret]string) Desk {
	c.Name = "ops"
	m := &activities.Masker{}
	for _, value := range secrets {
		m.Add(value)
	}
	return Desk{
		Channels: []Channel{c}, Page: "https://unwind.example.com/", Masker: m,
		Look: func(_ context.Context, w protocol.Waiting) (protocol.Waiting, bool, error) { return w, true, nil },
		Read: func(name activities.OwnSecret) (string, error) {
			if value, known := secrets[name]; known {
				return value, nil
			}
			return "", errors.New("the worker's environment has no " + string(name))
		},
	}
}

func deliver(t *testing.T, d Desk, all ...protocol.Waiting) protocol.Notices {
	return d.Deliver(t.Context(), noon, protocol.Notices{Channel: "ops", Waiting: all})
}

const (
	taskPage = "https://unwind.example.com/tasks/release"
	stepPage = taskPage + "/steps/deploy"
)

func TestAWebhookGetsSignedJSON(t *testing.T) {
	url, got := receiver(t, http.StatusNoContent)
	d := desk(Channel{Webhook: &Webhook{URL: "URL", Key: "KEY"}},
		map[activities.OwnSecret]string{"URL": url + "/hook/its-key", "KEY": "a-secret-key"})
	w := atGate("deploy", activities.High)
	w.Summary = "write a-secret-key to a file"
	after := deliver(t, d, w)
	require.Empty(t, after.Trouble)
	r := <-got
	require.Equal(t, "/hook/its-key", r.path)
	require.Equal(t, "application/json", r.header.Get("Content-Type"))
	require.Equal(t, sign("a-secret-key", r.header.Get(HeaderTime), r.body), r.header.Get(HeaderSignature))
	var n Notice
	require.NoError(t, json.Unmarshal(r.body, &n))
	w.Summary = "write *** to a file"
	require.Equal(t, Notice{ID: r.header.Get(HeaderID), Channel: "ops", At: noon, Items: []Item{
		{Alert: w.Alert, ID: w.ID(), Kind: New, Page: stepPage, TaskPage: taskPage},
	}}, n)
	require.Equal(t, 1, after.Waiting[0].Told)

	again := deliver(t, d, w) // the answer to the first was lost
	require.Equal(t, after.Next, again.Next)
	require.Equal(t, n.ID, (<-got).header.Get(HeaderID), "a receiver can drop it")
}

func TestSlackGetsWhatIsAskedWithTwoButtons(t *testing.T) {
	url, got := receiver(t, http.StatusOK)
	d := desk(Channel{Slack: &Slack{URL: "URL"}}, map[activities.OwnSecret]string{"URL": url + "/services/T/B/key"})
	require.Empty(t, deliver(t, d, atGate("deploy", activities.High)).Trouble)
	r := <-got
	require.Equal(t, "/services/T/B/key", r.path)
	require.JSONEq(t, `{
		"text": "Step deploy of task release waits for approval (risk: high)", "mrkdwn": false,
		"blocks": [
			{"type": "section", "text": {"type": "plain_text", "text": "`+strings.Join([]string{
		"Step deploy of task release waits for approval (risk: high)", "file.write: write &lt;1&gt; file &amp; more",
		"the task file asks",
		"Since 2026-05-04 12:00 UTC; without an answer it counts as rejected at 2026-05-04 16:00 UTC",
	}, `\n`)+`"}},
			{"type": "actions", "elements": [
				{"type": "button", "text": {"type": "plain_text", "text": "Look and decide"}, "url": "`+stepPage+`"},
				{"type": "button", "text": {"type": "plain_text", "text": "The task"}, "url": "`+taskPage+`"}
			]}
		]}`, string(r.body))
}

func TestNtfyGetsATopicAndAPriority(t *testing.T) {
	url, got := receiver(t, http.StatusOK)
	d := desk(Channel{Ntfy: &Ntfy{URL: "URL", Token: "TOKEN"}},
		map[activities.OwnSecret]string{"URL": url + "/secret-topic", "TOKEN": "tk_12345678"})
	for risk, priority := range map[activities.Risk]int{activities.High: high, activities.Low: normal} {
		require.Empty(t, deliver(t, d, atGate("deploy", risk)).Trouble)
		r := <-got
		require.Equal(t, "/", r.path)
		require.Equal(t, "Bearer tk_12345678", r.header.Get("Authorization"))
		var m ntfyMessage
		require.NoError(t, json.Unmarshal(r.body, &m))
		require.Contains(t, m.Message, "file.write: write <1> file & more")
		m.Message = ""
		require.Equal(t, ntfyMessage{Topic: "secret-topic", Priority: priority, Click: stepPage,
			Title:   "Step deploy of task release waits for approval (risk: " + string(risk) + ")",
			Actions: []ntfyAction{{"view", "Look and decide", stepPage}, {"view", "The task", taskPage}}}, m)
	}
}

// What fails is said without the address, and is due again.
func TestAChannelThatFailsSaysWhyAndNotWhere(t *testing.T) {
	refusing, _ := receiver(t, http.StatusUnauthorized)
	moved, _ := receiver(t, http.StatusFound)
	gone := httptest.NewServer(nil)
	gone.Close()
	host := func(url string) string { return strings.TrimPrefix(url, "http://") }
	for name, c := range map[string]struct{ url, want string }{
		"refused":    {refusing, host(refusing) + " answered 401 Unauthorized"},
		"redirected": {moved, host(moved) + " answered 302 Found"},
		"gone":       {gone.URL, host(gone.URL) + " did not answer: dial tcp"},
		"no address": {"ftp://x", "the secret that is its url holds no address that begins with https:// or http://"},
		"no secret":  {"", "slack.url: secret URL: the worker's environment has no URL"},
	} {
		t.Run(name, func(t *testing.T) {
			secrets := map[activities.OwnSecret]string{"URL": c.url + "/services/its-key"}
			if c.url == "" {
				secrets = nil
			}
			after := deliver(t, desk(Channel{Slack: &Slack{URL: "URL"}}, secrets), atGate("deploy", activities.High))
			require.Contains(t, after.Trouble, c.want)
			require.NotContains(t, after.Trouble, "its-key")
			require.Equal(t, 1, after.Failures)
			require.Equal(t, noon.Add(firstPause), after.Next)
			require.Zero(t, after.Waiting[0].Told)
		})
	}
}

// post is a mail server that takes what its only user sends.
type post struct {
	needsLogin bool
	refused    []string
	got        chan *mail.Message
}

func (p *post) NewSession(*smtp.Conn) (smtp.Session, error) { return &letter{post: p}, nil }

type letter struct {
	post  *post
	known bool
}

func (*letter) AuthMechanisms() []string { return []string{sasl.Plain} }
func (l *letter) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		if user != "unwind" || password != "mail-password" {
			return errors.New("no such user")
		}
		l.known = true
		return nil
	}), nil
}

func (l *letter) Mail(string, *smtp.MailOptions) error {
	if l.post.needsLogin && !l.known {
		return smtp.ErrAuthRequired
	}
	return nil
}
func (l *letter) Rcpt(to string, _ *smtp.RcptOptions) error {
	if slices.Contains(l.post.refused, to) {
		return &smtp.SMTPError{Code: 550, Message: "no such user here"}
	}
	return nil
}
func (l *letter) Data(r io.Reader) error {
	m, err := mail.ReadMessage(r)
	if err == nil {
		body, _ := io.ReadAll(m.Body)
		m.Body = strings.NewReader(string(body))
		l.post.got <- m
	}
	return err
}
func (*letter) Reset()        {}
func (*letter) Logout() error { return nil }

// serveMail starts a mail server with a certificate of its own, and returns its port and the file of
// the certificate.
func serveMail(t *testing.T, p *post, implicit, offersTLS bool) (port, ca string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"localhost"}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	ca = filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	settings := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	s := smtp.NewServer(p)
	s.ErrorLog = nil
	if offersTLS {
		s.TLSConfig = settings
	}
	s.AllowInsecureAuth = true
	l, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	_, port, err = net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	if implicit {
		l = tls.NewListener(l, settings)
	}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return port, ca
}

func TestMailIsSentWithTLSOnly(t *testing.T) {
	for name, c := range map[string]struct {
		scheme              string
		implicit, offersTLS bool
		password, want      string
		isStranger          bool
	}{
		"starttls":       {scheme: "smtp", offersTLS: true, password: "mail-password"},
		"implicit":       {scheme: "smtps", implicit: true, offersTLS: true, password: "mail-password"},
		"no login":       {scheme: "smtp", offersTLS: true},
		"wrong password": {scheme: "smtp", offersTLS: true, password: "another-one", want: "SMTP AUTH failed"},
		"without TLS":    {scheme: "smtp", password: "mail-password", want: "STARTTLS"},
		"not known":      {scheme: "smtp", offersTLS: true, isStranger: true, want: "certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &post{needsLogin: c.password != "", got: make(chan *mail.Message, 2)}
			port, ca := serveMail(t, p, c.implicit, c.offersTLS)
			m := &Mail{Server: c.scheme + "://localhost:" + port, CA: ca, From: "Unwind <unwind@example.com>",
				To: []string{"ann@example.com", "bob@example.com"}}
			if c.password != "" {
				m.User, m.Password = "unwind", "PASSWORD"
			}
			if c.isStranger {
				m.CA = ""
			}
			after := deliver(t, desk(Channel{Mail: m}, map[activities.OwnSecret]string{"PASSWORD": c.password}),
				atGate("deploy", activities.High))
			if c.want != "" {
				require.Contains(t, after.Trouble, c.want)
				require.Empty(t, p.got)
				return
			}
			require.Empty(t, after.Trouble)
			var got *mail.Message
			for _, to := range []string{"<ann@example.com>", "<bob@example.com>"} {
				got = <-p.got
				require.Equal(t, to, got.Header.Get("To"))
			}
			require.Equal(t, "[Unwind] Step deploy of task release waits for approval (risk: high)", got.Header.Get("Subject"))
			require.Regexp(t, `^<[0-9a-f]{12}@example\.com>$`, got.Header.Get("Message-Id"))
			body, err := io.ReadAll(got.Body)
			require.NoError(t, err)
			require.Contains(t, string(body), stepPage)
		})
	}
}

// What was too much to be kept is told by itself, however a channel does it.
func TestWhatWasTooMuchIsTold(t *testing.T) {
	url, got := receiver(t, http.StatusOK)
	secrets := map[activities.OwnSecret]string{"URL": url + "/topic", "KEY": "a-secret-key"}
	for more, want := range map[int]string{1: "Not shown, as they were too many: 1 alert;", 7: "Not shown, as they were too many: 7 alerts;"} {
		for _, c := range []Channel{{Slack: &Slack{URL: "URL"}}, {Ntfy: &Ntfy{URL: "URL"}}} {
			after := desk(c, secrets).Deliver(t.Context(), noon, protocol.Notices{Channel: "ops", More: more})
			require.Equal(t, protocol.Notices{Channel: "ops"}, after)
			require.Contains(t, string((<-got).body), want)
		}
		d := desk(Channel{Webhook: &Webhook{URL: "URL", Key: "KEY"}}, secrets)
		d.Deliver(t.Context(), noon, protocol.Notices{Channel: "ops", More: more})
		require.Contains(t, string((<-got).body), fmt.Sprintf(`"items":[],"more":%d}`, more))
	}
}

// Names are those that an agent chose.
func TestATitleShowsNamesAsTheyAre(t *testing.T) {
	long := strings.Repeat("x", 300)
	require.Equal(t, `Step a\u202eb of task `+strings.Repeat("x", 199)+"… is parked",
		Item{Alert: protocol.Alert{Task: long, Step: "a\u202eb", State: "parked"}}.title())
	require.Contains(t, Notice{Items: []Item{{Alert: protocol.Alert{Task: "a\u202eb"}}}}.text(), `starter show a\u202eb`)
}

// An address that is refused silences no other, and is shown until all are reached.
func TestMailReachesTheAddressesThatAreTaken(t *testing.T) {
	p := &post{refused: []string{"bob@example.com"}, got: make(chan *mail.Message, 10)}
	port, ca := serveMail(t, p, false, true)
	d := desk(Channel{Remind: time.Hour, Mail: &Mail{Server: "smtp://localhost:" + port, CA: ca,
		From: "unwind@example.com", To: []string{"bob@example.com", "ann@example.com"}}}, nil)
	after := deliver(t, d, atGate("deploy", activities.High))
	require.Equal(t, 1, after.Waiting[0].Told)
	require.Zero(t, after.Failures)
	require.Contains(t, after.Trouble, "no such user here")
	require.Contains(t, after.Trouble, "bob@example.com")
	require.Equal(t, "<ann@example.com>", (<-p.got).Header.Get("To"))
	require.Equal(t, after.Trouble, d.Deliver(t.Context(), noon.Add(time.Minute), after).Trouble)
	require.Empty(t, p.got)

	p.refused = append(p.refused, "ann@example.com")
	failed := deliver(t, d, atGate("deploy", activities.High))
	require.Zero(t, failed.Waiting[0].Told)
	require.Equal(t, 1, failed.Failures)

	p.refused = nil
	require.Empty(t, d.Deliver(t.Context(), noon.Add(time.Hour), after).Trouble)
}
