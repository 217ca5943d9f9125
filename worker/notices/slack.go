package notices

import (
	"context"
	"strings"

	"github.com/seed-62bf7108/unwind/workflows/payload"
)

// block is a part of a message in Slack.
type block struct {
	Type     string    `json:"type"`
	Text     *text     `json:"text,omitempty"`
	Elements []element `json:"elements,omitempty"`
}

// text is plain where it may be an agent's: nothing in it formats, links or names anybody.
type text struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// element is a button that opens an address.
type element struct {
	Type string `json:"type"`
	Text text   `json:"text"`
	URL  string `json:"url"`
}

// maxSection is less than the 3,000 characters that Slack takes in one section.
const maxSection = 2900

// escapeSlack makes a text one that names nobody, and links to nothing.
var escapeSlack = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

func (d Desk) sendSlack(ctx context.Context, s Slack, n Notice) error {
	address, err := d.secret("slack.url", s.URL)
	if err != nil {
		return err
	}
	section := func(s string) block {
		return block{Type: "section", Text: &text{"plain_text", payload.Clip(escapeSlack.Replace(s), maxSection)}}
	}
	var blocks []block
	for _, item := range n.Items {
		blocks = append(blocks, section(strings.Join(append([]string{item.title()}, item.lines()...), "\n")))
		if item.Page != "" {
			blocks = append(blocks, block{Type: "actions", Elements: []element{
				button("Look and decide", item.Page), button("The task", item.TaskPage),
			}})
		}
	}
	if rest := n.rest(); rest != "" {
		blocks = append(blocks, section(rest))
	}
	return d.postJSON(ctx, address, map[string]any{
		"text": escapeSlack.Replace(n.title()), "mrkdwn": false, "blocks": blocks}, nil)
}

func button(label, address string) element {
	return element{Type: "button", Text: text{"plain_text", label}, URL: address}
}
