package oidc

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/seed-62bf7108/unwind/starter/bearer"
	"github.com/seed-62bf7108/unwind/starter/usage"
)

// Provider knows persons.
type Provider struct {
	config   Config
	provider *oidc.Provider
	verifier *oidc.IDTokenVerifier
	oauth    oauth2.Config
	browser  *http.Client
}

// answerLimit is how long the provider has for an answer.
const answerLimit = 10 * time.Second

// Discover asks the provider of a config for its addresses and keys. The error is one of the input:
// a provider that is not there now lets nobody in.
func Discover(ctx context.Context, c Config) (*Provider, error) {
	p := &Provider{config: c, browser: &http.Client{Timeout: answerLimit}}
	found, err := oidc.NewProvider(p.with(ctx), c.Issuer)
	if err != nil {
		return nil, usage.Errorf("--oidc: issuer %s: %w", c.Issuer, err)
	}
	p.provider = found
	p.verifier = found.Verifier(&oidc.Config{ClientID: c.Client})
	p.oauth = oauth2.Config{ClientID: c.Client, ClientSecret: c.secret, Endpoint: found.Endpoint(),
		RedirectURL: strings.TrimRight(c.URL, "/") + CallbackPath, Scopes: append([]string{oidc.ScopeOpenID}, c.Scopes...)}
	return p, nil
}

func (p *Provider) with(ctx context.Context) context.Context {
	return oidc.ClientContext(ctx, p.browser)
}

// Attempt is a sign-in that has begun. Only the person's browser may know of it.
type Attempt struct {
	// Nonce stands in the token that the provider makes for it.
	Nonce string
	// Verifier proves that whoever shows the code has begun it (PKCE).
	Verifier string
}

// Begin begins the sign-in that state identifies, and says where to send the person.
func (p *Provider) Begin(state string) (a Attempt, to string) {
	a = Attempt{Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier()}
	return a, p.oauth.AuthCodeURL(state, oidc.Nonce(a.Nonce), oauth2.S256ChallengeOption(a.Verifier))
}

// StrangerError is that the provider knows the person, who may do nothing here.
type StrangerError struct{ Told string }

func (e StrangerError) Error() string { return e.Told }

// Finish finds who has come back with a code. It returns a StrangerError if that person may not even
// look.
func (p *Provider) Finish(ctx context.Context, a Attempt, code string) (who bearer.Person, err error) {
	ctx, cancel := context.WithTimeout(p.with(ctx), answerLimit)
	defer cancel()
	claims, err := p.claims(ctx, a, code)
	if err != nil {
		return who, err
	}
	name, err := p.nameOf(claims)
	if err != nil {
		return who, err
	}
	groups, err := listOf(claims[p.config.Groups])
	if err != nil {
		return who, fmt.Errorf("claim %s: %w", p.config.Groups, err)
	}
	role := p.config.roleOf(groups)
	if role == "" {
		return who, StrangerError{fmt.Sprintf("%s is in none of the groups that may look here", name)}
	}
	return bearer.Person{Name: name, Role: role}, nil
}

// claims are what the provider says of the person, each as JSON: in the token whose signature it
// proves, and where that leaves something out, when it is asked about the same person.
func (p *Provider) claims(ctx context.Context, a Attempt, code string) (map[string]json.RawMessage, error) {
	tokens, err := p.oauth.Exchange(ctx, code, oauth2.VerifierOption(a.Verifier))
	if err != nil {
		return nil, explainExchange(err)
	}
	raw, _ := tokens.Extra("id_token").(string)
	token, err := p.verifier.Verify(ctx, raw)
	if err != nil {
		return nil, fmt.Errorf("the provider's token proves nothing: %w", err)
	}
	if token.Nonce != a.Nonce {
		return nil, errors.New("the provider's token belongs to another sign-in")
	}
	claims := map[string]json.RawMessage{}
	if err := token.Claims(&claims); err != nil {
		return nil, err
	}
	isWhole := claims[p.config.Name] != nil && claims[p.config.Groups] != nil &&
		(p.config.Name != emailClaim || claims[verifiedClaim] != nil)
	if isWhole || p.provider.UserInfoEndpoint() == "" {
		return claims, nil
	}
	info, err := p.provider.UserInfo(ctx, oauth2.StaticTokenSource(tokens))
	if err != nil {
		return nil, fmt.Errorf("the provider does not say more about the person: %w", err)
	}
	if info.Subject != token.Subject {
		return nil, errors.New("the provider has answered about somebody else")
	}
	more := map[string]json.RawMessage{}
	if err := info.Claims(&more); err != nil {
		return nil, err
	}
	if claims[verifiedClaim] == nil { // what is verified is the address beside it
		delete(claims, emailClaim)
	}
	maps.Copy(more, claims)
	return more, nil
}

// explainExchange tells what is wrong with this server's own client from a code that fits nothing.
func explainExchange(err error) error {
	refused, answered := errors.AsType[*oauth2.RetrieveError](err)
	switch {
	case !answered:
		return errors.New("the provider does not answer; try again")
	case refused.ErrorCode == "invalid_grant":
		return errors.New("the provider does not accept the code of this sign-in; try again")
	}
	return fmt.Errorf("the provider does not accept this server (%s); correct client, secret or url in the file of --oidc",
		cmp.Or(refused.ErrorCode, refused.Response.Status))
}

// nameOf is the name of a person. An address counts only if the provider has verified it: others
// could claim it.
func (p *Provider) nameOf(claims map[string]json.RawMessage) (name string, err error) {
	_ = json.Unmarshal(claims[p.config.Name], &name) // what is no text is no name
	if name = strings.TrimSpace(name); name == "" {
		return "", fmt.Errorf("the provider names nobody: there is no claim %s", p.config.Name)
	}
	verified := strings.Trim(string(claims[verifiedClaim]), `"`) // some send it as a text
	if p.config.Name == emailClaim && verified != "true" {
		return "", fmt.Errorf("the provider has not verified the address %s", name)
	}
	return name, nil
}

// listOf reads a claim that is a list of texts, or one text. One that is missing is an empty list.
func listOf(claim json.RawMessage) (all []string, err error) {
	if claim == nil || json.Unmarshal(claim, &all) == nil {
		return all, nil
	}
	var one string
	if json.Unmarshal(claim, &one) != nil {
		return nil, errors.New("it is no list of texts")
	}
	return []string{one}, nil
}
