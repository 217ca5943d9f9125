package notices

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/wneessen/go-mail"
)

// implicitTLS is the scheme of a server where TLS begins at once, and startTLS that of one where it
// is asked for.
const (
	implicitTLS = "smtps"
	startTLS    = "smtp"
)

// sendMail sends each address a message of its own: a server refuses a message with one address that
// it does not take.
func (d Desk) sendMail(ctx context.Context, m Mail, n Notice) error {
	client, err := d.dialer(m)
	if err != nil {
		return err
	}
	var all []*mail.Msg
	for _, to := range m.To {
		message, err := m.message(to, n)
		if err != nil {
			return err
		}
		all = append(all, message)
	}
	if err = client.DialAndSendWithContext(ctx, all...); err == nil {
		return nil
	}
	var problems []error
	for _, message := range all {
		if message.HasSendError() {
			problems = append(problems, message.SendError())
		}
	}
	if len(problems) > 0 {
		err = errors.Join(problems...)
	}
	err = fmt.Errorf("mail through %s: %w", m.Server, err)
	if slices.ContainsFunc(all, (*mail.Msg).IsDelivered) {
		return toldSome{err}
	}
	return err
}

// message is a notice as one for an address.
func (m Mail) message(to string, n Notice) (*mail.Msg, error) {
	message := mail.NewMsg()
	if err := message.From(m.From); err != nil {
		return nil, fmt.Errorf("mail.from: %w", err)
	}
	if err := message.To(to); err != nil {
		return nil, fmt.Errorf("mail.to: %w", err)
	}
	_, domain, _ := strings.Cut(m.From, "@")
	message.SetMessageIDWithValue(n.ID + "@" + strings.TrimRight(domain, ">"))
	message.SetDateWithValue(n.At)
	message.Subject("[Unwind] " + n.title())
	message.SetBodyString(mail.TypeTextPlain, n.text())
	return message, nil
}

// dialer makes what connects to the server, always with TLS.
func (d Desk) dialer(m Mail) (*mail.Client, error) {
	scheme, host, port, err := splitServer(m.Server)
	if err != nil {
		return nil, fmt.Errorf("mail.server: %w", err)
	}
	settings := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if m.CA != "" {
		pem, err := os.ReadFile(m.CA)
		if err != nil {
			return nil, fmt.Errorf("mail.ca: %w", err)
		}
		settings.RootCAs = x509.NewCertPool()
		if !settings.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("mail.ca: %s has no certificate in PEM", m.CA)
		}
	}
	options := []mail.Option{mail.WithPort(port), mail.WithTimeout(sendLimit), mail.WithTLSConfig(settings),
		mail.WithTLSPolicy(mail.TLSMandatory)}
	if scheme == implicitTLS {
		options = append(options, mail.WithSSL())
	}
	if m.User != "" {
		password, err := d.secret("mail.password", m.Password)
		if err != nil {
			return nil, err
		}
		options = append(options, mail.WithSMTPAuth(mail.SMTPAuthAutoDiscover), mail.WithUsername(m.User),
			mail.WithPassword(password))
	}
	return mail.NewClient(host, options...)
}

// splitServer reads smtp://HOST:PORT or smtps://HOST:PORT.
func splitServer(s string) (scheme, host string, port int, err error) {
	u, err := url.Parse(s)
	if err == nil {
		port, err = strconv.Atoi(u.Port())
	}
	if err != nil || u.Scheme != startTLS && u.Scheme != implicitTLS || u.Hostname() == "" || u.User != nil {
		return "", "", 0, errors.New("write smtp://HOST:PORT, where TLS is asked for, as on port 587, or " +
			"smtps://HOST:PORT, where it begins at once, as on port 465")
	}
	return u.Scheme, u.Hostname(), port, nil
}
