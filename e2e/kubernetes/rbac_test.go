package kubernetes_test

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// may returns the right to these verbs on a resource.
func may(group, resource string, verbs ...string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}}
}

// grant gives a subject rights in a namespace, and returns the name of the Role and the RoleBinding.
func (c *cluster) grant(namespace string, to rbacv1.Subject, rights []rbacv1.PolicyRule) string {
	c.Helper()
	role, err := c.client.RbacV1().Roles(namespace).Create(c.ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
		Rules:      rights,
	}, metav1.CreateOptions{})
	c.ok(err)
	c.bind(namespace, role.Name, to)
	return role.Name
}

// bind gives a subject the rights of a Role.
func (c *cluster) bind(namespace, role string, to rbacv1.Subject) {
	c.Helper()
	to.APIGroup = rbacv1.GroupName
	_, err := c.client.RbacV1().RoleBindings(namespace).Create(c.ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role},
		Subjects:   []rbacv1.Subject{to},
	}, metav1.CreateOptions{})
	c.ok(err)
}

func (c *cluster) grantEverywhere(to rbacv1.Subject, rights []rbacv1.PolicyRule) {
	c.Helper()
	role, err := c.client.RbacV1().ClusterRoles().Create(c.ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
		Rules:      rights,
	}, metav1.CreateOptions{})
	c.ok(err)
	to.APIGroup = rbacv1.GroupName
	_, err = c.client.RbacV1().ClusterRoleBindings().Create(c.ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{to},
	}, metav1.CreateOptions{})
	c.ok(err)
}
