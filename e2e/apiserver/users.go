package apiserver

import (
	"context"
	"net/http"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/rest"
)

// User returns a client configuration for a new user, who may do what may returns true for. The
// server asks may for each request, from any goroutine, and answers 403 Forbidden otherwise, as
// RBAC does.
func (s *Server) User(may func(authorizer.Attributes) bool) *rest.Config {
	config := s.Config()
	config.BearerToken = string(uuid.NewUUID())
	s.users.may.Store(config.BearerToken, may)
	return config
}

// users are the users with limited rights, by their tokens.
type users struct{ may sync.Map }

func (u *users) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	token := strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer ")
	if _, known := u.may.Load(token); !known {
		return nil, false, nil
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: token, Groups: []string{user.AllAuthenticated}}}, true, nil
}

// Authorize allows everything, except to these users.
func (u *users) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if may, known := u.may.Load(a.GetUser().GetName()); known && !may.(func(authorizer.Attributes) bool)(a) {
		return authorizer.DecisionDeny, "", nil
	}
	return authorizer.DecisionAllow, "", nil
}
