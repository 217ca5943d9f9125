package notices

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/workflows/payload"
)

// maxMessage is less than the 4,096 bytes that ntfy takes as a message.
const maxMessage = 3500

// Priorities of ntfy: high rings, default does not where the phone is silent.
const (
	normal = 3
	high   = 4
)

type ntfyMessage struct {
	Topic    string       `json:"topic"`
	Title    string       `json:"title"`
	Message  string       `json:"message"`
	Priority int          `json:"priority"`
	Click    string       `json:"click,omitempty"`
	Actions  []ntfyAction `json:"actions,omitempty"`
}

type ntfyAction struct {
	Action string `json:"action"`
	Label  string `json:"label"`
	URL    string `json:"url"`
}

func (d Desk) sendNtfy(ctx context.Context, c Ntfy, n Notice) error {
	address, err := d.secret("ntfy.url", c.URL)
	if err != nil {
		return err
	}
	server, topic, err := splitTopic(address)
	if err != nil {
		return err
	}
	header := map[string]string{}
	if c.Token != "" {
		token, err := d.secret("ntfy.token", c.Token)
		if err != nil {
			return err
		}
		header["Authorization"] = "Bearer " + token
	}
	m := ntfyMessage{Topic: topic, Title: n.title(), Message: payload.Clip(n.text(), maxMessage), Priority: normal}
	if slices.ContainsFunc(n.Items, Item.isUrgent) {
		m.Priority = high
	}
	if len(n.Items) > 0 && n.Items[0].Page != "" {
		first := n.Items[0]
		m.Click = first.Page
		m.Actions = []ntfyAction{{"view", "Look and decide", first.Page}, {"view", "The task", first.TaskPage}}
	}
	return d.postJSON(ctx, server, m, header)
}

// splitTopic returns the address of a server, and the topic that an address there names.
func splitTopic(address string) (server, topic string, err error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", "", errors.New("the secret that is its url holds no address")
	}
	path := strings.TrimSuffix(u.Path, "/")
	i := strings.LastIndexByte(path, '/')
	if topic = path[i+1:]; topic == "" {
		return "", "", errors.New("the secret that is its url holds no topic; write https://SERVER/TOPIC")
	}
	u.Path = path[:i+1]
	return u.String(), topic, nil
}
